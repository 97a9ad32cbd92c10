"""In virtual time the live executor decides as the simulator that replays the same texts: k, accepted, schedule."""

from __future__ import annotations

import dataclasses
import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.live.decisions import compare, simulated
    from calibrate.prompts import Prompt
    from calibrate.record import Recorder, Settings
    from sim.policies import policies

    from .live_runs import COSTS, server, some_prompts
    from .random_pairs import LETTERS, llama, model_pair, skip_pair

DEPTH, LENGTH = 8, 30
LIVE = [name for name in policies if policies[name].lossless and name not in ("oracle", "specdec++")]
PROMPTS = some_prompts(7, LETTERS)
PAIRS: dict[str, Any] = {"llama": lambda: model_pair(llama), "skip": skip_pair}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@cache
def recorded(name: str) -> Any:
    """A pair, and the windows along its greedy texts of `PROMPTS`."""
    pair = PAIRS[name]()
    prompts = [Prompt("", "".join(chr(65 + token) for token in ids)) for ids in PROMPTS]
    settings = Settings(depth=DEPTH, output_tokens=LENGTH)
    return pair, list(Recorder(pair, settings).trajectories(prompts))


@pytest.mark.parametrize("policy", LIVE)
def test_decisions_are_those_of_the_replay(policy: str) -> None:
    """7 requests, 3 slots, prompts in chunks of 24 tokens, a pool that is too small at times."""
    pair, trajectories = recorded("llama")
    made = server(
        pair,
        PROMPTS,
        LENGTH,
        policy=policy,
        arrival=np.arange(7) * 0.03,
        max_num_seqs=3,
        tokens=24,
        blocks=30,
        depth=DEPTH,
    )
    assert made.run().failure is None
    log = simulated(made.workload, trajectories, made.config, COSTS)
    found = compare(made.log, log)
    assert found.differences == ()
    assert found.same == found.steps == len(log.emissions["request"])
    assert found.same_steps
    assert made.log.steps == log.steps


def test_another_kind_of_draft_decides_alike_too() -> None:
    pair, trajectories = recorded("skip")
    made = server(pair, PROMPTS, LENGTH, policy="svip", max_num_seqs=3, depth=DEPTH)
    assert made.run().failure is None
    assert made.log.steps == simulated(made.workload, trajectories, made.config, COSTS).steps


def test_other_windows_are_told_apart() -> None:
    """Acceptance turned around: the texts part at once, and the requests are named."""
    pair, trajectories = recorded("llama")
    made = server(pair, PROMPTS, LENGTH, policy="fixed:k=4", max_num_seqs=3, depth=DEPTH)
    made.run()
    turned = [dataclasses.replace(each, accept=1 - each.accept) for each in trajectories]
    found = compare(made.log, simulated(made.workload, turned, made.config, COSTS))
    assert {difference.request for difference in found.differences} == set(range(7))
    assert found.same < found.steps
