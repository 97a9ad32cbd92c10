"""K by batch size from costs and acceptance: counted by hand, and held against simulated throughput."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim.config import SimConfig
from sim.simulate import load_inputs, simulate
from sim.tune.schedule import (
    Schedule,
    by_context,
    choose,
    context_ranges,
    emitted_per_step,
    executor_of,
    mean_context,
    ranges,
    schedule,
)
from traces.errors import InputError

BASE = SimConfig(trace="random", input_len=10, output_len=21, num_prompts=8, request_rate="inf", acceptance="iid:1")
SMALL = "h100-llama-3.1-8b-tp1"


def emitted(max_k: int, **options: object) -> np.ndarray:
    config = replace(BASE, **options)
    inputs = load_inputs(config)
    return emitted_per_step(executor_of(config, inputs), inputs.workload, max_k)


def test_tokens_per_step_when_all_is_accepted():
    # 21 tokens, the first from the prefill: 20 in steps of k + 1 = 1, 2, 3, 4: 20, 10, 7 and 5 steps
    assert emitted(3) == pytest.approx([1, 2, 20 / 7, 4])


def test_tokens_per_step_when_nothing_is_accepted():
    assert list(emitted(3, acceptance="iid:0")) == [1, 1, 1, 1]


def test_tokens_per_step_of_independent_acceptance():
    # E = (1 - a^(k+1)) / (1 - a) with a = 0.5: 1, 1.5, 1.75; 8 * 4000 tokens leave it within a few permille
    assert emitted(2, acceptance="iid:0.5", output_len=4000) == pytest.approx([1, 1.5, 1.75], rel=0.01)


def test_mean_context():
    # prompt 10, outputs of 4: decode steps hold 11, 12 and 13 tokens
    assert mean_context(load_inputs(replace(BASE, output_len=4)).workload) == 12


def test_nothing_decodes():
    with pytest.raises(InputError, match="nothing decodes"):
        mean_context(load_inputs(replace(BASE, output_len=1)).workload)


def test_k_changes_only_for_two_percent():
    rate = np.array(
        [
            [1.0, 1.5, 1.2],  # K = 1
            [1.0, 1.2, 1.22],  # 2 is better by less than 2 %: 1.22 < 1.02 * 1.2
            [1.0, 1.0, 1.1],  # 2
            [1.0, 0.9, 0.95],  # 0 is better than 2 by 5 %
        ]
    )
    assert list(choose(rate)) == [1, 1, 2, 0]


def test_ranges():
    assert ranges(np.array([3, 3, 1, 0, 0])) == [(1, 2, 3), (3, 3, 1), (4, 5, 0)]


@pytest.mark.parametrize(("k", "expected"), [(1, 3), (2, 1), (3, None), (None, None)])
def test_crossover(k, expected):
    # against plain decoding: K = 1 pays at batches 1 and 2, K = 2 never, K = 3 always
    rate = np.array([[1, 1.2, 0.9, 1.5], [1, 1.1, 0.8, 1.4], [1, 0.9, 0.7, 1.1]])
    assert Schedule(choose(rate), np.ones(4), rate, 100).crossover(k) == expected


@pytest.mark.parametrize("k", [1, 4])
def test_the_expected_gain_is_the_simulated_one(k):
    # eight clients at a time, hardly any prefill: throughput over that of plain decoding is the table's entry, but for
    # the end, when fewer than eight are left
    config = replace(BASE, profile=SMALL, acceptance="regimes", output_len=400, num_prompts=256, max_concurrency=8)
    inputs = load_inputs(config)
    found = schedule(config, inputs, 4)
    runs = [simulate(replace(config, policy=policy), inputs) for policy in (f"fixed:k={k}", "none")]
    simulated = runs[0].metrics["output_throughput"] / runs[1].metrics["output_throughput"]
    assert found.speedup[7, k] == pytest.approx(simulated, rel=0.02)


def test_drafts_that_fail_are_not_made():
    config = replace(BASE, acceptance="iid:0", max_num_seqs=32)
    found = schedule(config, load_inputs(config), 4)
    assert found.rows == [(1, 32, 0)]
    assert found.crossover() == 1


def test_contexts_cover_every_length_once():
    assert list(context_ranges(5000)) == [(0, 1023), (1024, 4095), (4096, 5000)]
    config = replace(BASE, max_num_seqs=16, max_model_len=5000)
    found = by_context(config, load_inputs(config), 3, emitted(3))
    assert found[0][0] == 0
    assert found[-1][1] == 5000
    assert [last + 1 for _, last, _ in found[:-1]] == [first for first, _, _ in found[1:]]
