"""Greedy text of live runs against transformers' own: batches, joins mid-flight, ragged drafts, preemption."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.drafters.eagle import EagleDrafter
    from calibrate.live.passes import PaddedPasses
    from calibrate.pairs import Pair, load_pair
    from calibrate.prompts import load_prompts, render
    from sim.policies import policies

    from .live_runs import generated, serve, server, some_prompts, texts
    from .random_eagle import RandomEagle
    from .random_pairs import LETTERS, gpt2, llama, model_pair, ngram_pair, pair, skip_pair

ONLY_REPLAY = {"oracle", "specdec++"}
LOSSLESS = [name for name in policies if policies[name].lossless and name not in ONLY_REPLAY]
PROMPTS = some_prompts(9, LETTERS)
LENGTHS = [30, 5, 1, 40, 12, 25, 2, 33, 17]
ARRIVALS = np.arange(9) * 0.025  # every second step or so while others decode
RANDOM = {
    "llama": lambda: model_pair(llama),
    "gpt2": lambda: model_pair(gpt2),
    "skip": skip_pair,
    "ngram": ngram_pair,
    "eagle": lambda: eagle_pair(),
}


def eagle_pair() -> Pair:
    target = llama(0)
    return pair(target, EagleDrafter(RandomEagle(target), "eagle", LETTERS))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@cache
def random_pair(name: str) -> tuple[Pair, list[list[int]]]:
    found = RANDOM[name]()
    return found, generated(found, PROMPTS, LENGTHS)


@cache
def tiny() -> tuple[Pair, list[list[int]], list[list[int]]]:
    found = load_pair("tiny", "draft-s")
    prompts = [render(prompt, found.tokenizer) for prompt in load_prompts("tiny", limit=8)]
    return found, prompts, generated(found, prompts, [32] * 8)


@pytest.mark.parametrize("policy", LOSSLESS)
def test_every_lossless_policy_writes_what_generate_writes(policy: str) -> None:
    """The tiny pair; 8 requests join 5 slots while others decode; prompts come in chunks of up to 48 tokens."""
    found, prompts, expected = tiny()
    run = serve(
        found,
        prompts,
        32,
        policy=policy,
        arrival=np.arange(8) * 0.02,
        max_num_seqs=5,
        tokens=48,
        max_model_len=200,
        depth=16,
    )
    assert texts(run) == expected


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("policy", ["fixed:k=0", "fixed:k=3", "svip", "dsde"])
def test_every_kind_of_draft_writes_what_generate_writes(name: str, policy: str, compact: bool) -> None:
    found, expected = random_pair(name)
    run = serve(found, PROMPTS, LENGTHS, policy=policy, arrival=ARRIVALS, tokens=40, compact=compact)
    assert texts(run) == expected


def test_k_0_never_asks_the_draft() -> None:
    """Its model may not even fit: no session is made."""
    found, _ = random_pair("llama")
    made = server(found, PROMPTS[:2], 5, policy="fixed:k=0")
    assert made.run().failure is None
    assert made.executor._drafting is None


@pytest.mark.parametrize("name", RANDOM)
def test_preempted_sequences_go_on_with_the_same_text(name: str) -> None:
    """Blocks of 4 tokens, 20 of them: the longest request alone needs 15 (20 + 40 tokens), so that two do not fit."""
    found, expected = random_pair(name)
    run = serve(found, PROMPTS, LENGTHS, policy="fixed:k=3", arrival=ARRIVALS, blocks=20)
    assert run.log.requests.preemptions.sum() > 0
    assert texts(run) == expected


@pytest.mark.parametrize("name", ["llama", "gpt2", "eagle"])
def test_padded_passes_write_the_same(name: str) -> None:
    """What models without the attention interface get."""
    found, expected = random_pair(name)
    made = server(found, PROMPTS, LENGTHS, policy="svip", arrival=ARRIVALS, tokens=40)
    made.executor.passes_of_target = PaddedPasses(made.executor.target)
    assert made.run().failure is None
    assert [made.texts.output(request) for request in range(9)] == expected


def test_trimmed_drafts_write_the_same() -> None:
    found, expected = random_pair("llama")
    made = server(found, PROMPTS, LENGTHS, policy="fixed:k=4", arrival=ARRIVALS)
    made.engine.speculation.trim = lambda batch, proposed, signals: np.minimum(proposed, batch.slot % 3)
    run = made.run()
    assert run.failure is None
    assert int(run.log.step_columns()["verified"].sum()) < int(run.log.step_columns()["drafted"].sum())
    assert texts(run) == expected
