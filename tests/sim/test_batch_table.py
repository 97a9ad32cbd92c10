"""K by batch size. Which tables are right is checked against vLLM's own in tests/conformance."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.sim.policy_driver import batch, policy
from traces.errors import InputError

TABLE = "[[9,16,1],[1,4,3],[33,40,0]]"


def k_at(rule, *sizes):
    return [int(rule.lengths(batch(range(size)))[0]) for size in sizes]


def test_gaps_and_the_tail_inherit():
    # 1-4: 3; gap 5-8: 3; 9-16: 1; gap 17-32: 1; 33-40: 0; tail: 0
    rule = policy(f"batch-table:{TABLE}", num_slots=64)
    assert k_at(rule, 1, 4, 5, 8, 9, 16, 17, 32, 33, 40, 41, 64) == [3, 3, 3, 3, 1, 1, 1, 1, 0, 0, 0, 0]


def test_k_is_the_most_of_any_range():
    rule = policy(f"batch-table:k=2,table={TABLE}", num_slots=64)
    assert k_at(rule, 1, 9, 33) == [2, 1, 0]


def test_prefilling_sequences_count():
    rule = policy(f"batch-table:{TABLE}", num_slots=64)
    assert rule.lengths(replace(batch([0, 1]), num_running=9)).tolist() == [1, 1]


def test_a_whole_speculative_config():
    # num_speculative_tokens bounds the 3 of the first range
    config = {
        "method": "eagle",
        "model": "a,b=c",
        "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 1]],
    }
    assert k_at(policy(f"batch-table:{json.dumps(config)}"), 1, 5) == [2, 1]


@pytest.mark.parametrize(
    "content",
    [TABLE, json.dumps({"num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": json.loads(TABLE)})],
)
def test_a_file(tmp_path, content):
    (tmp_path / "table.json").write_text(content)
    assert k_at(policy(f"batch-table:{tmp_path}/table.json", num_slots=64), 1, 9, 33) == [3, 1, 0]


def test_the_default_is_the_published_profile():
    assert k_at(policy("batch-table", num_slots=256), 1, 64, 65, 102, 166) == [3, 3, 2, 1, 0]


def test_a_table_of_zeros_needs_no_draft_model():
    assert policy("batch-table:[[1,256,0]]").max_length == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("[[2,4,3]]", "starts at 2"),
        ("[[1,4,3],[4,8,1]]", "overlaps 1 to 4"),
        ("[[4,1,3]]", "first <= last"),
        ("[[1,4,-1]]", "K >= 0"),
        ("[[1,4,2.5]]", "2.5 is no whole number"),
        ("[[1,4,2147483648]]", "is no whole number of at most"),
        ('{"num_speculative_tokens_per_batch_size":{"1":3}}', "the table is {'1': 3}, expected ranges"),
        ('"x"', "the table is 'x', expected ranges"),
        ("[[1,4,Infinity]]", "inf is no whole number"),
        ("[[1,4]]", "no range"),
        ("[]", "the table is"),
        ("[[1,4,3]", "is no JSON"),
        ("[[1,4,3]],k=0", "longest draft is 0"),
        ("missing.json", "neither JSON nor a file"),
        ('{"num_speculative_tokens":3}', "use fixed:k=K"),
        ('{"num_speculative_tokens_per_batch_size":[[1,4,3]]}', "None is no whole number"),
        ("[[1,4,3]],[[5,8,1]]", "options: table, k"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(InputError, match="policy batch-table") as error:
        policy(f"batch-table:{options}")
    assert message in str(error.value)
