"""The books of a live run: ends of texts, slots that are free at once, limits, and what a step holds."""

from __future__ import annotations

import dataclasses
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
    from calibrate.live.executor import ONLY_REPLAY
    from calibrate.pairs import Pair
    from calibrate.signals import Sampling
    from traces.errors import InputError

    from .live_runs import serve, server, some_prompts, texts
    from .random_pairs import LETTERS, llama, model_pair, ngram_pair, pair

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def same() -> Pair:
    """The target as its own draft: all is accepted."""
    return pair(llama(0), ModelDrafter(llama(0), "same", LETTERS))


def ending(found: Pair, token: int) -> Pair:
    return dataclasses.replace(found, end_tokens=frozenset([token]))


def rows(run: Any, request: int) -> list[tuple[int, int, int, int]]:
    """(tokens, proposed, verified, accepted) of the emissions of a request, in order."""
    log = run.log.emissions
    own = log["request"] == request
    columns = (log[name][own].tolist() for name in ("tokens", "proposed", "verified", "accepted"))
    return list(zip(*columns, strict=True))


def test_steps_of_an_always_accepted_draft() -> None:
    """k = 3, 10 tokens: 1 from the prefill, 4, 4, and for the last one 1 left: k = remaining - 1 = 0."""
    run = serve(same(), [PROMPT], 10, policy="fixed:k=3")
    assert rows(run, 0) == [(1, -1, 0, 0), (4, 3, 3, 3), (4, 3, 3, 3), (1, 0, 0, 0)]


def test_the_draft_lags_one_token_after_full_acceptance() -> None:
    """F45: 8 + 1 known after the prefill; the step feeds 9 and 2 drafts, so that of 13 the draft knows 11."""
    made = server(same(), [PROMPT], 10, policy="fixed:k=3")
    made.engine.submit(0, 0.0)
    for _ in range(2):
        made.engine.finish(made.engine.begin(0.0) or 0.0)
    assert made.engine.scheduler.batch.known_tokens[0] == 13
    assert made.engine.scheduler.batch.draft_tokens[0] == made.executor._drafting.session.lengths[0] == 11


def sampled_text() -> list[int]:
    [found] = texts(serve(same(), [PROMPT], 40, sampling=Sampling(1.0), policy="fixed:k=5"))
    return found


def test_an_end_token_inside_an_accepted_run_ends_the_text() -> None:
    """F4. Steps of 1, 6, 6, ... tokens: the one that holds token `at` emits up to it, its accepted run cut in the log;
    the drafts after it are no text."""
    free = sampled_text()
    at = next(i for i in range(8, 40) if free[i] not in free[:i] and (i - 1) % 6 < 4)
    run = serve(ending(same(), free[at]), [PROMPT], 40, sampling=Sampling(1.0), policy="fixed:k=5")
    assert texts(run) == [free[: at + 1]]
    kept = (at - 1) % 6 + 1
    assert rows(run, 0)[-1] == (kept, 5, 5, kept)
    assert run.log.requests.reason[0] == "stop"


def test_end_tokens_may_be_ignored() -> None:
    free = sampled_text()
    options = {"sampling": Sampling(1.0), "policy": "fixed:k=5"}
    run = serve(ending(same(), free[9]), [PROMPT], 40, ignore_eos=True, **options)
    assert texts(run) == [free]
    assert run.log.requests.reason[0] == "length"


def test_a_text_may_end_with_its_first_token() -> None:
    """Which comes with the prefill: no decode step follows."""
    first = texts(serve(same(), [PROMPT], 1))[0][0]
    run = serve(ending(same(), first), [PROMPT, [1, 2, 3]], 5, policy="fixed:k=2")
    assert rows(run, 0) == [(1, -1, 0, 0)]
    assert run.log.requests.reason[0] == "stop"
    assert run.engine.scheduler.kv.used == 0


def test_a_finished_request_frees_its_slot_at_once() -> None:
    """Two slots, all there at 0. Request 0 of 3 tokens: steps 0, 1, 2. Request 2 takes its slot in step 3, whose
    prefill gives its first token."""
    run = serve(same(), [PROMPT] * 3, [3, 20, 4], max_num_seqs=2)
    log = run.log.emissions
    assert log["step"][log["request"] == 0].tolist() == [0, 1, 2]
    assert log["step"][log["request"] == 2].tolist() == [3, 4, 5, 6]


def test_an_end_token_frees_the_slot_at_once() -> None:
    """As above, but the text ends with its third token: the token after it may not be waited for."""
    free = texts(serve(same(), [PROMPT], 20, sampling=Sampling(1.0)))[0]
    at = next(i for i in range(2, 20) if free[i] not in free[:i])
    found = ending(same(), free[at])
    run = serve(found, [PROMPT] * 3, [20, 20, 4], max_num_seqs=1, sampling=Sampling(1.0))
    log = run.log.emissions
    assert log["step"][log["request"] == 0].tolist() == list(range(at + 1))
    assert log["step"][log["request"] == 1][0] == at + 1


def test_chunked_prefill_beside_decoding() -> None:
    """Budget of 10 tokens: request 0 (8 tokens) prefills in step 0 together with 2 of request 1, which then gets 9 a
    step beside one decoding token: 20 tokens take steps 0 to 2."""
    run = serve(same(), [PROMPT, list(range(20))], [6, 2], tokens=10)
    steps = run.log.step_columns()
    assert steps["prefill_tokens"][:4].tolist() == [10, 9, 9, 0]
    assert run.log.emissions["step"][run.log.emissions["request"] == 1].tolist() == [2, 3]


def test_a_prompt_without_room_is_rejected() -> None:
    run = serve(same(), [list(range(30)), PROMPT], 5, max_model_len=30)
    assert run.log.requests.reason[0].startswith("prompt of 30 tokens leaves no room")
    assert len(run.texts.output(1)) == 5


def test_a_draft_with_nothing_to_propose_proposes_nothing() -> None:
    """Prompt lookup in a text without a repetition: k = 3 is asked for, 0 proposed."""
    run = serve(ngram_pair(), [list(range(9))], 2, policy="fixed:k=3")
    run_long = serve(ngram_pair(), [list(range(9))], 5, policy="fixed:k=3")
    assert rows(run, 0) == [(1, -1, 0, 0), (1, 0, 0, 0)]
    assert rows(run_long, 0)[1][1] in (0, 1, 2, 3)


def test_policies_that_need_a_replay_say_so() -> None:
    failed = server(same(), [PROMPT], 5, policy="oracle").run().failure
    assert failed == ONLY_REPLAY


def test_targets_that_say_nothing_end_the_run_with_a_line() -> None:
    found = same()
    with torch.no_grad():
        found.target.lm_head.weight[0] = float("nan")
    failed = server(found, [PROMPT], 5).run().failure
    assert failed is not None
    assert "NaN" in failed


def test_lengths_beyond_the_positions_are_refused() -> None:
    """The random target has 128 positions: drafts of up to 8 may run beyond a text."""
    with pytest.raises(InputError, match="give --max-model-len 120 or less"):
        server(same(), [PROMPT], 5, max_model_len=125)


def test_emitted_tokens_are_the_text() -> None:
    prompts = some_prompts(6, LETTERS)
    run = serve(model_pair(llama), prompts, 25, policy="svip", max_num_seqs=3)
    log = run.log.emissions
    counts = np.bincount(log["request"], weights=log["tokens"])
    assert counts.tolist() == [len(text) for text in texts(run)] == [25] * 6


@pytest.mark.parametrize("rule", ["typical", "fuzzy:jsd=0.5", "adasd"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_lossy_rules_let_more_tokens_stand(rule: str, temperature: float) -> None:
    """The log counts the tokens that the rule alone let stand; the books of tokens hold as without it."""
    prompts = some_prompts(6, LETTERS)
    options: dict[str, Any] = {"policy": "fixed:k=4", "sampling": Sampling(temperature)}
    run = serve(model_pair(llama), prompts, 40, rule=rule, **options)
    log = run.log.emissions
    assert 0 < log["lossy"].sum() <= log["accepted"].sum()
    assert (log["lossy"] <= log["accepted"]).all()
    assert [len(text) for text in texts(run)] == [40] * 6
    exact = serve(model_pair(llama), prompts, 40, **options).log.emissions
    assert exact["lossy"].sum() == 0
    assert len(log["tokens"]) < len(exact["tokens"])
