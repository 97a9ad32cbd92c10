"""Recorded windows against naive drafting: every window drafted by itself, without a cache."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate import signals
    from calibrate.drafters.model import ModelDrafter
    from calibrate.pairs import Pair, load_pair
    from calibrate.prompts import Prompt, load_prompts, render
    from calibrate.record import Recorder, Settings, record
    from calibrate.signals import Sampling
    from sim.replay.windows import SIGNALS
    from traces.errors import InputError

    from .random_pairs import LETTERS, PROMPTS, gpt2, llama, model_pair, ngram_pair, pair, skip_pair

DEPTH, LENGTH = 4, 12
GREEDY, ONE = Sampling(), Sampling(temperature=1.0)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def settings(sampling: Sampling, **others: int) -> Settings:
    return Settings(sampling, depth=DEPTH, output_tokens=LENGTH, **{"batch": 5, **others})


def logits_after(model: Any, text: list[int]) -> Any:
    """[1, V], one pass without a cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([text])).logits[:, -1, :LETTERS].float()


def naive_greedy(found: Pair, text: list[int]) -> tuple[list[int], dict[str, list[float]]]:
    """DEPTH greedy draft tokens after a text, and their signals."""
    tokens: list[int] = []
    rows: dict[str, list[float]] = {name: [] for name in SIGNALS}
    for _ in range(DEPTH):
        draft = logits_after(found.drafter.model, [*text, *tokens])
        target = logits_after(found.target, [*text, *tokens])
        tokens.append(int(draft.argmax()))
        for name, value in signals.compare(target, draft, torch.tensor([tokens[-1]]), GREEDY).items():
            rows[name].append(value.item())
    return tokens, rows


@pytest.mark.parametrize("make", [lambda: model_pair(llama), lambda: model_pair(gpt2), skip_pair])
def test_greedy_windows_equal_naive_drafting(make: Any) -> None:
    """Up to the first rejection the row, after it the off row of the rejected position (F46, F47)."""
    found = make()
    worst, rejections = 0.0, 0
    for prompt, recorded in zip(PROMPTS, Recorder(found, settings(GREEDY)).trajectories(PROMPTS), strict=True):
        text = render(prompt, found.tokenizer)
        for row in range(len(recorded.accept)):
            tokens, naive = naive_greedy(found, [*text, *recorded.tokens[: row + 1].tolist()])
            run = int(np.append(recorded.accept[row] > 0, False).argmin())
            assert tokens[:run] == recorded.tokens[row + 1 :][:run].tolist() or row + run >= LENGTH - 1
            if run < DEPTH and row + run < len(recorded.accept):
                rejections += 1
                assert tokens[run] != recorded.tokens[row + run + 1]
                for name in SIGNALS:
                    after = recorded.off[name][row + run, : DEPTH - run - 1]
                    worst = max(worst, np.abs(np.subtract(naive[name][run + 1 :], after)).max(initial=0))
            for name in SIGNALS:
                worst = max(worst, np.abs(np.subtract(naive[name], recorded.on[name][row])[: run + 1]).max())
    assert rejections > 5
    assert worst < 1e-4


def test_sampled_entropies_equal_naive_drafting() -> None:
    """On the tiny pair: every window of a text, each position read without a cache."""
    found = load_pair("tiny", "draft-s")
    prompts = load_prompts("tiny", limit=1)
    [recorded] = Recorder(found, settings(ONE)).trajectories(prompts)
    text = [*render(prompts[0], found.tokenizer), *recorded.tokens.tolist()]
    start, worst = len(text) - len(recorded.tokens), 0.0
    for row in range(len(recorded.accept) - DEPTH):
        for depth in range(DEPTH):
            with torch.no_grad():
                ids = torch.tensor([text[: start + row + 1 + depth]])
                law = found.drafter.model(input_ids=ids).logits[0, -1].double().softmax(-1)
            entropy = -(law * law.log()).sum().item()
            worst = max(worst, abs(entropy - recorded.on["draft_entropy"][row, depth]))
    assert worst < 1e-4


def test_scanned_windows_equal_windows_drafted_one_by_one() -> None:
    """The one-pass trick against the path that serves any draft."""
    found = model_pair(llama)
    scanned = record(found, PROMPTS, temperature=1.0, depth=DEPTH, output_tokens=LENGTH)
    found.drafter.position_only = False
    drafted = record(found, PROMPTS, temperature=1.0, depth=DEPTH, output_tokens=LENGTH)
    worst = [np.abs(scanned.on[name] - drafted.on[name]).max() for name in SIGNALS]
    worst += [np.abs(scanned.off[name] - drafted.off[name]).max() for name in SIGNALS]
    assert max(np.abs(scanned.accept - drafted.accept).max(), *worst) < 1e-4


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_that_is_the_target_is_always_accepted(make: Any, temperature: float) -> None:
    """F45: exactly 1.0 everywhere."""
    found = record(
        pair(make(0), ModelDrafter(make(0), "same", LETTERS)), PROMPTS, temperature=temperature, depth=DEPTH, batch=2
    )
    assert found.accept.min() == 1.0


def test_mean_acceptance_is_mean_overlap() -> None:
    """On text from p, min(1, q(y) / p(y)) has the mean sum min(p, q): within 3 standard errors of the difference."""
    found = model_pair(llama)
    prompts = PROMPTS * 6
    differences: list[float] = []
    for prompt, text in zip(prompts, Recorder(found, settings(ONE)).trajectories(prompts), strict=True):
        ids = torch.tensor([[*render(prompt, found.tokenizer), *text.tokens.tolist()]])
        with torch.no_grad():
            p, q = (m(input_ids=ids).logits[0, -LENGTH:-1].softmax(-1) for m in (found.target, found.drafter.model))
        beta = torch.minimum(p, q).sum(-1).numpy()
        differences += (text.accept[:, 0] - beta).tolist()
    error = np.std(differences) / np.sqrt(len(differences))
    assert abs(np.mean(differences)) < 3 * error < 0.2


def test_sampling_settings_reach_both_models() -> None:
    """F43: with top_k = 1 both are greedy, so acceptance is 0 or 1 and there is no entropy."""
    found = record(model_pair(llama), PROMPTS, temperature=1.0, top_k=1, depth=DEPTH)
    assert set(np.unique(found.accept)) <= {0.0, 1.0}
    assert found.on["target_entropy"].max() == 0


@pytest.mark.parametrize(("target_width", "draft_width"), [(LETTERS + 4, LETTERS + 2), (LETTERS + 2, LETTERS + 4)])
def test_padded_vocabularies_are_cut_to_the_common_one(target_width: int, draft_width: int) -> None:
    """F44: entropy stays under ln(40), and no padded id is written."""
    drafter = ModelDrafter(llama(1, vocabulary=draft_width), "padded", LETTERS)
    found = pair(llama(0, vocabulary=target_width), drafter)
    texts = list(Recorder(found, settings(Sampling(temperature=50.0))).trajectories(PROMPTS))
    assert max(text.tokens.max() for text in texts) < LETTERS
    assert max(text.on["target_entropy"].max() for text in texts) == pytest.approx(np.log(LETTERS), abs=0.05)


def test_windows_do_not_depend_on_the_batch() -> None:
    """Draws belong to (seed, prompt): the same text, acceptance and rollouts in any company."""
    found = model_pair(llama)
    alone, together = (
        record(found, PROMPTS, temperature=1.0, depth=DEPTH, output_tokens=LENGTH, batch=batch) for batch in (1, 3)
    )
    worst = max(np.abs(alone.off[name] - together.off[name]).max() for name in SIGNALS)
    assert max(worst, np.abs(alone.accept - together.accept).max()) < 1e-4


def test_recording_goes_on_where_it_stopped() -> None:
    recorder = Recorder(model_pair(llama), settings(ONE))
    everything = list(recorder.trajectories(PROMPTS))
    [last] = recorder.trajectories(PROMPTS, done=[0, 1])
    assert last.index == 2
    assert last.tokens.tolist() == everything[2].tokens.tolist()


def test_end_token_ends_the_windows() -> None:
    """A later token that is new to the text, made the end: the same windows up to it, and each is whole."""
    found = model_pair(llama)
    [free, *_] = Recorder(found, settings(ONE)).trajectories(PROMPTS)
    tokens = free.tokens.tolist()
    at = next(index for index in range(3, LENGTH) if tokens[index] not in tokens[:index])
    ended = Pair(**{**vars(found), "end_tokens": frozenset([tokens[at]])})
    [text, *_] = Recorder(ended, settings(ONE)).trajectories(PROMPTS)
    assert text.tokens.tolist() == tokens[: at + 1]
    assert np.abs(text.accept - free.accept[:at]).max() < 1e-4


def test_nothing_found_by_lookup_is_never_accepted() -> None:
    """A prompt of different letters: the first window has nothing to copy unless the first output repeats one."""
    [text] = Recorder(ngram_pair(), settings(ONE)).trajectories([Prompt("", "ABCDEFG")])
    nothing = text.on["draft_prob"] == 0
    assert nothing.any()
    assert text.accept[nothing].max() == 0


def test_out_of_memory_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stub lets any pass of more than two rows fail; all texts are there, and it is said."""
    from calibrate.runner import ModelRunner

    forward = ModelRunner.forward

    def small(self: Any, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        if len(tokens) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, tokens, *args, **kwargs)

    monkeypatch.setattr(ModelRunner, "forward", small)
    said: list[str] = []
    texts = list(Recorder(model_pair(llama), settings(GREEDY, batch=4), said.append).trajectories(PROMPTS))
    assert [text.index for text in texts] == [0, 1, 2]
    assert said == ["out of memory: going on with 2 texts at a time"]


def test_prompts_without_room_are_refused() -> None:
    """128 positions: 120 letters and 12 + 4 tokens do not fit."""
    with pytest.raises(InputError, match="no prompt leaves room for 16 tokens"):
        list(Recorder(model_pair(llama), settings(GREEDY)).trajectories([Prompt("", "a" * 120)]))


def test_target_probability_of_a_sampled_window_is_that_of_the_rejected_token() -> None:
    """p = (.2, .8), q = (.8, .2): only token 0 can be rejected, (q - p)+ = (.6, 0), whatever the text goes on with."""
    from calibrate.tables import along

    target, draft = (torch.tensor([[a, 1 - a]] * 2).log() for a in (0.2, 0.8))
    _, found, rejected = along(target, draft, torch.tensor([0, 1]), ONE, torch.tensor([0.5, 0.5]))
    assert rejected.tolist() == [0, 0]
    assert found["target_prob"].tolist() == pytest.approx([0.2, 0.2])
