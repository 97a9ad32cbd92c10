"""Each cap on one batch: lengths 2, 4, 9 and a sequence that does not draft."""

from __future__ import annotations

import numpy as np
import pytest

from sim.policies import make_cap
from sim.policies.caps import capped
from tests.sim.policy_driver import batch, context
from traces.errors import InputError


def apply(spec, lengths):
    return capped(batch(range(len(lengths))), np.array(lengths), make_cap(spec, context())).tolist()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", [2, 4, 9, 0]),
        ("mean", [2, 4, 5, 0]),  # 15 / 3 = 5
        ("median", [2, 4, 4, 0]),
        ("min", [2, 2, 2, 0]),
        ("quantile:0.5", [2, 4, 4, 0]),
        ("quantile:q=0.75", [2, 4, 7, 0]),  # between 4 and 9: 6.5, rounded up
        ("fixed:3", [2, 3, 3, 0]),
    ],
)
def test_capped(spec, expected):
    assert apply(spec, [2, 4, 9, 0]) == expected


def test_mean_rounds_up():
    # 2, 3: mean 2.5 -> 3
    assert apply("mean", [2, 3]) == [2, 3]


@pytest.mark.parametrize("spec", ["mean", "median", "min", "quantile:0.9"])
def test_a_batch_of_one_keeps_its_own_length(spec):
    assert apply(spec, [7]) == [7]  # F55


@pytest.mark.parametrize("spec", ["mean", "median", "min", "quantile:0.9", "fixed:2", "goodput"])
def test_a_batch_that_does_not_draft_has_no_cap(spec):
    assert apply(spec, [0, 0]) == [0, 0]  # F55


@pytest.mark.parametrize(
    "spec", ["average", "fixed:-1", "quantile:1.5", "fixed:x", "mean:3", "fixed:c=1,d=2", "goodput:3"]
)
def test_bad_specs(spec):
    with pytest.raises(InputError, match="cap"):
        make_cap(spec, context())
