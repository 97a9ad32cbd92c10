"""What is printed for vLLM and SGLang, held against the rules of both and against vLLM's own verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from sim.policies import make_policy
from sim.policies.batch_table import lookup, parse_table
from sim.policies.sglang_adaptive import parse_config
from sim.replay.profile import Profile
from sim.tune.engines import (
    KEY,
    check_vllm,
    policy_of,
    sglang_arguments,
    sglang_config,
    vllm_config,
    with_context_axis,
)
from sim.tune.schedule import Schedule
from tests.sim.policy_driver import batch, context
from traces.errors import InputError

ROWS = [(1, 4, 3), (5, 7, 1), (8, 8, 0)]
PROFILE = Profile.load("h100-llama-3.1-8b-tp1")


def test_vllm():
    assert vllm_config(ROWS, PROFILE) == {
        "method": "draft_model",
        "model": "meta-llama/Llama-3.2-1B-Instruct",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 7, 1], [8, 8, 0]],
    }
    check_vllm(vllm_config(ROWS, PROFILE), 8)


def test_no_speculation_at_all_is_still_a_valid_configuration():
    config = vllm_config([(1, 8, 0)], PROFILE)
    assert config["num_speculative_tokens"] == 1  # vLLM asks for at least one
    check_vllm(config, 8)


@pytest.mark.parametrize(
    ("most", "table", "expected"),
    [
        (3, [[2, 8, 3]], "starts at 2"),
        (3, [[1, 4, 3], [4, 8, 1]], "overlaps"),
        (3, [[1, 4, -1]], "K >= 0"),
        (3, [[4, 1, 3]], "first <= last"),
        (3, [[1, 9, 3]], "beyond --max-num-seqs 8"),
        (2, [[1, 8, 3]], "above num_speculative_tokens"),
        (0, [[1, 8, 0]], "at least 1"),
        (3, [[1, 8, 2.0]], "no whole number"),
        (3, [], "expected ranges"),
        (3, None, "expected ranges"),
        (3, [[1, 8]], "no range"),
    ],
)
def test_rules_of_vllm(most, table, expected):
    with pytest.raises(InputError, match=expected):
        check_vllm({"num_speculative_tokens": most, KEY: table}, 8)


@pytest.mark.golden
def test_what_passes_here_means_the_same_to_vllm(golden: Path):
    """Of vLLM's own verdicts: it takes every table that we would print, and looks up the same K."""
    passed = 0
    for case in json.loads((golden / "vllm_dynamic_sd.json").read_text())["cases"]:
        config = {"num_speculative_tokens": case["num_speculative_tokens"], KEY: case["table"]}
        try:
            check_vllm(config, case["max_batch"])
        except InputError:
            continue
        assert case["accepted"], case["name"]
        assert case["config_layer"]["accepted"], case["name"]
        ours = lookup(parse_table(case["table"]), case["num_speculative_tokens"], case["max_batch"])
        theirs = np.concatenate([np.full(last - first + 1, k) for first, last, k in case["lookup"]])
        assert list(ours) == list(theirs), case["name"]
        passed += 1
    assert passed >= 6


def test_sglang_has_the_same_k_at_every_batch():
    ranges = parse_config(sglang_config(ROWS))
    assert {size: each.candidate_steps for size, each in ranges.items()} == {1: [3], 5: [1], 8: [0]}


def test_sglang_verifies_one_token_more_than_it_drafts():
    arguments = sglang_arguments(ROWS, PROFILE)
    assert arguments[arguments.index("--speculative-num-steps") + 1] == "3"
    assert arguments[arguments.index("--speculative-num-draft-tokens") + 1] == "4"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_simulated_policy_follows_the_schedule(engine):
    made = make_policy(policy_of(engine, ROWS, PROFILE), context(num_slots=8))
    drafts = [int(made.lengths(batch(range(size)))[0]) for size in range(1, 9)]
    assert drafts == [3, 3, 3, 3, 1, 1, 1, 0]


def test_a_context_axis_has_five_numbers_a_row():
    short = Schedule(np.array([2, 1]), np.ones(1), np.ones((2, 1)), 10)
    long = Schedule(np.array([3, 3]), np.ones(1), np.ones((2, 1)), 10)
    config = with_context_axis(vllm_config(ROWS, PROFILE), [(0, 1023, short), (1024, 8192, long)])
    assert config["num_speculative_tokens"] == 3
    assert config[KEY] == [[1, 1, 0, 1023, 2], [1, 2, 1024, 8192, 3], [2, 2, 0, 1023, 1]]
