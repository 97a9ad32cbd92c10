"""`batch-table` against vLLM's own lookup, and against what its two layers refuse."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from sim.policies.batch_table import lookup, parse_table
from tests.sim import policy_driver
from traces.errors import InputError


def as_runs(values: list[int]) -> list[list[int]]:
    """[from, to, K] over the batch sizes 1, 2, ..."""
    runs, first = [], 1
    for k, group in groupby(values):
        last = first + len(list(group)) - 1
        runs.append([first, last, k])
        first = last + 1
    return runs


def cases(golden: Any) -> list[dict[str, Any]]:
    document: dict[str, Any] = json.loads((golden / "vllm_dynamic_sd.json").read_text(encoding="utf-8"))
    return document["cases"]


@pytest.mark.golden
def test_tables_that_vllm_takes(golden):
    taken = [case for case in cases(golden) if case["accepted"] and case["config_layer"]["accepted"]]
    assert len(taken) > 20
    for case in taken:
        rows = parse_table(case["table"])
        assert [list(row) for row in rows] == case["normalised"], case
        table = lookup(rows, case["num_speculative_tokens"], case["max_batch"])
        assert as_runs(table.tolist()) == case["lookup"], case


@pytest.mark.golden
def test_tables_that_vllm_refuses(golden):
    # refused by either layer (floats are truncated by the second, but never get past the first). An engine has at
    # least one slot, so that a largest batch of 0 cannot be asked for
    refused = [
        case
        for case in cases(golden)
        if not (case["accepted"] and case["config_layer"]["accepted"]) and case["max_batch"] > 0
    ]
    assert len(refused) > 10
    for case in refused:
        config = {
            "num_speculative_tokens_per_batch_size": case["table"],
            "num_speculative_tokens": case["num_speculative_tokens"],
        }
        with pytest.raises(InputError, match="batch-table"):
            policy_driver.policy(f"batch-table:{json.dumps(config)}")
