"""The heuristic schedule of transformers by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError


def lengths(spec: str, script: list[tuple[int, int]], **options: int) -> list[int]:
    """k before each step and after the last; script: drafted, accepted."""
    rule, seen = policy(spec, num_slots=1, **options), []
    for drafted, accepted in script:
        seen.append(int(rule.lengths(batch([0]))[0]))
        rule.observe(batch([0]), outcome([drafted], [accepted], [[0.1] * drafted]))
    return [*seen, int(rule.lengths(batch([0]))[0])]


def test_six_steps_of_one_sequence():
    script = [
        (5, 5),  # all: 5 + 2
        (7, 3),  # not all: 7 - 1
        (2, 2),  # cut short by the end of the request or a cap, but all of it: 6 + 2
        (8, 0),  # 8 - 1
        (0, 0),  # nothing drafted: stays
        (7, 6),  # 7 - 1
    ]
    assert lengths("hf-heuristic:k=5", script) == [5, 7, 6, 8, 7, 7, 6]


def test_it_starts_with_twenty():
    assert lengths("hf-heuristic", []) == [20]


def test_never_below_one():
    assert lengths("hf-heuristic:k=2", [(2, 0), (1, 0), (1, 0), (1, 1)]) == [2, 1, 1, 1, 3]


def test_never_above_what_can_be_drafted():
    assert lengths("hf-heuristic", [(7, 7), (8, 8)], max_draft_tokens=8) == [8, 8, 8]


def test_sequences_do_not_mix_and_a_new_one_starts_anew():
    rule = policy("hf-heuristic:k=5", num_slots=3)
    rule.observe(batch([2, 0]), outcome([5, 5], [5, 0], [[0.1] * 5] * 2))
    assert rule.lengths(batch([0, 1, 2])).tolist() == [4, 5, 7]
    rule.begin(np.array([2]))
    assert rule.lengths(batch([0, 1, 2])).tolist() == [4, 5, 5]


def test_divergence_does_not_matter():
    rule = policy("hf-heuristic:k=5", num_slots=1)
    rule.observe(batch([0]), outcome([5], [5], [[np.inf] * 5]))
    assert rule.lengths(batch([0]))[0] == 7


@pytest.mark.parametrize("spec", ["k=0", "k=x", "schedule=constant"])
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy hf-heuristic"):
        policy(f"hf-heuristic:{spec}")
