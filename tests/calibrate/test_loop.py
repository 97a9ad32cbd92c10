"""The live loop against transformers' own generation, and its books."""

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
    from calibrate.drafters.model import ModelDrafter
    from calibrate.loop import SpeculativeLoop
    from calibrate.pairs import Pair, load_pair
    from calibrate.prompts import load_prompts, render
    from calibrate.signals import Sampling
    from calibrate.writing import choose

    from .random_pairs import LETTERS, gpt2, llama, model_pair, ngram_pair, pair, skip_pair

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LENGTH = 40
PAIRS = {
    "llama": lambda: model_pair(llama),
    "gpt2": lambda: model_pair(gpt2),
    "skip": skip_pair,
    "ngram": ngram_pair,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def loop(found: Pair, sampling: Sampling | None = None) -> SpeculativeLoop:
    return SpeculativeLoop(found, sampling or Sampling(), max_model_len=80)


def same() -> Pair:
    return pair(llama(0), ModelDrafter(llama(0), "same", LETTERS))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("k", [0, 1, 4])
def test_greedy_text_is_that_of_generate(name: str, k: int) -> None:
    found = PAIRS[name]()
    expected = found.target.generate(
        input_ids=torch.tensor([PROMPT]), attention_mask=torch.ones(1, 8), max_new_tokens=LENGTH, do_sample=False
    )
    assert loop(found).run(PROMPT, k=k, output_tokens=LENGTH).tokens == expected[0, 8:].tolist()


def test_greedy_text_of_the_tiny_pair_is_that_of_generate() -> None:
    found = load_pair("tiny", "draft-s")
    live = SpeculativeLoop(found, Sampling(), max_model_len=512)
    for prompt in load_prompts("tiny", limit=3):
        ids = render(prompt, found.tokenizer)
        tokens = torch.tensor([ids])
        expected = found.target.generate(
            input_ids=tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=32, do_sample=False
        )
        assert live.run(ids, k=4, output_tokens=32).tokens == expected[0, len(ids) :].tolist()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_target_as_draft_is_always_accepted(temperature: float) -> None:
    """F45, k = 3, 41 tokens: the first, then 10 steps of 4."""
    found = loop(same(), Sampling(temperature)).run(PROMPT, k=3, output_tokens=41)
    assert [(s.proposed, s.accepted, s.emitted) for s in found.steps] == [(3, 3, 4)] * 10


def test_cache_lengths_after_each_round() -> None:
    """F45: 8 + 9 tokens, all known but the last to the target; the draft lacks its own last proposal too."""
    live = loop(same())
    live.run(PROMPT, k=3, output_tokens=9)
    assert live.session.lengths.tolist() == [8 + 9 - 2]


def test_length_limit_inside_the_accepted_run() -> None:
    """k = 5, the target as draft, 10 tokens: 1 + 6 + 3; the last step keeps 3 drafts and no bonus (F4)."""
    steps = loop(same()).run(PROMPT, k=5, output_tokens=10).steps
    assert [(s.accepted, s.emitted) for s in steps] == [(5, 6), (3, 3)]


def test_end_token_inside_the_accepted_run() -> None:
    """F4: sampled text cut where a token comes for the first time; what was drafted after it is no text."""
    found = same()
    free = loop(found, Sampling(1.0)).run(PROMPT, k=5, output_tokens=LENGTH, rng=np.random.default_rng(1)).tokens
    at = next(i for i in range(8, LENGTH) if free[i] not in free[:i] and (i - 1) % 6 < 4)
    ended = Pair(**{**vars(found), "end_tokens": frozenset([free[at]])})
    text = loop(ended, Sampling(1.0)).run(PROMPT, k=5, output_tokens=LENGTH, rng=np.random.default_rng(1))
    assert text.tokens == free[: at + 1]
    assert sum(step.emitted for step in text.steps) == at
    assert text.steps[-1].accepted == text.steps[-1].emitted == (at - 1) % 6 + 1


def test_sampled_text_follows_the_target() -> None:
    """F38: p = .5 .5 0, q = .6 .3 .1 cut to two tokens by top_k, and accepted by that q: tokens 0 and 1 come equally
    often in 4,000 steps. Accepting by the q before the cut would give .556."""
    live, rng = loop(ngram_pair(), Sampling(1.0, top_k=2)), np.random.default_rng(0)
    target, draft = torch.log(torch.tensor([[0.5, 0.5, 0.0]] * 2)), torch.log(torch.tensor([[0.6, 0.3, 0.1]]))
    counts = [0, 0, 0]
    for _ in range(4000):
        token = int(choose(draft, live.sampling, torch.from_numpy(rng.random(1))))
        accepted, last = live._verify(target, [draft[0]], [token], rng)
        counts[token if accepted else last] += 1
    assert counts[2] == 0
    assert counts[0] / 4000 == pytest.approx(0.5, abs=3 * (0.25 / 4000) ** 0.5)


def test_one_hot_drafts_leave_the_law_alone() -> None:
    """F39: a draft that always proposes one token is q = 1 there. p = [.6, .4]: of 4,000 steps .6 emit token 0."""
    live, law = loop(ngram_pair(), Sampling(1.0)), torch.log(torch.tensor([[0.6, 0.4], [0.5, 0.5]]))
    draft, rng, first = [torch.tensor([0.0, -torch.inf])], np.random.default_rng(0), 0
    for _ in range(4000):
        accepted, last = live._verify(law, draft, [0], rng)
        first += accepted or last == 0
    assert first / 4000 == pytest.approx(0.6, abs=3 * (0.24 / 4000) ** 0.5)


def test_gaps_are_of_what_decided() -> None:
    found: Any = loop(model_pair(llama)).run(PROMPT, k=2, output_tokens=10, gaps=True)
    assert all(0 <= step.gap < 50 for step in found.steps)
