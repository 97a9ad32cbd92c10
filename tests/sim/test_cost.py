"""The forward cost: values worked out by hand, both look-up paths, and what a profile may not hold."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.replay.cost import Correction, ForwardCost, HostCost, Knots, MeasuredRange
from traces.errors import InputError

# 10 ms for up to 8 tokens, 14 ms at 16 (0.5 ms a token), 30 ms at 48 (0.5 ms a token, and on)
STAIRS = Knots((8.0, 16.0, 48.0), (0.010, 0.014, 0.030))
FADING = Correction((1.0, 4.0, 8.0), (1.0, 5.0, 9.0), ((1.2, 1.0, 1.0), (0.8, 1.1, 1.0), (1.0, 1.0, 1.0)))


def test_hand_made_cost() -> None:
    cost = ForwardCost.affine(0.010, per_token_s=1e-4, per_kv_token_s=1e-7, per_query_key_pair_s=1e-9, per_seq_s=1e-5)
    # 10 ms + 320 * 0.1 ms + 64000 * 0.1 us + 400000 * 1 ns + 64 * 10 us = 10 + 32 + 6.4 + 0.4 + 0.64 ms
    assert cost.seconds(320, 64000, 400000, 64) == pytest.approx(0.04944, abs=1e-15)


def test_pass_without_new_tokens_is_free() -> None:
    cost = ForwardCost(STAIRS)
    assert cost.seconds(0, 1000, 0, 0) == 0.0
    assert cost.seconds(np.array([0, 8]), 1000, 0, np.array([0, 8])).tolist() == [0.0, 0.010]


@pytest.mark.parametrize(("new_tokens", "expected_s"), [(1, 0.010), (8, 0.010), (12, 0.012), (16, 0.014), (80, 0.046)])
def test_linear_holds_below_and_extends_above_its_knots(new_tokens: int, expected_s: float) -> None:
    # 80 tokens: 30 ms + 32 * 0.5 ms
    assert ForwardCost(STAIRS).seconds(new_tokens, 0, 0, 1) == pytest.approx(expected_s, abs=1e-15)


@pytest.mark.parametrize(("new_tokens", "expected_s"), [(1, 0.010), (8, 0.010), (9, 0.014), (16, 0.014), (17, 0.0145)])
def test_cuda_graphs_round_up_to_a_captured_size(new_tokens: int, expected_s: float) -> None:
    """F60: 9 tokens are padded to 16 and cost 14 ms, not the 10.5 ms on the line; beyond the last size, no padding."""
    cost = ForwardCost(STAIRS, capture_sizes=(8, 16))
    assert cost.seconds(new_tokens, 0, 0, 1) == pytest.approx(expected_s, abs=1e-15)
    assert cost.seconds(np.array([new_tokens]), 0, 0, 1)[0] == pytest.approx(expected_s, abs=1e-15)


def test_extrapolation_never_falls_and_can_be_counted() -> None:
    """F61: 5.0 ms at b = 1 and 4.9 ms at b = 2 are refused; what lies beyond the measured range says so."""
    with pytest.raises(InputError, match="a larger pass cannot cost less"):
        Knots((1.0, 2.0), (0.0050, 0.0049))
    cost = ForwardCost(STAIRS, measured=MeasuredRange(48, 1000, 8))
    assert cost.seconds(64, 0, 0, 8) >= cost.seconds(48, 0, 0, 8)
    assert not cost.outside(48, 1000, 8)
    assert cost.outside(49, 1000, 8)
    assert cost.outside(48, 1001, 8)
    assert cost.outside(48, 1000, 9)


def test_correction_between_nodes_and_beyond_them() -> None:
    # (2, 3) is a third along the sequences and half along the query tokens:
    # first row 1.1, second row 0.95, between them 1.1 - 0.15 / 3 = 1.05
    assert FADING.at(2, 3) == pytest.approx(1.05)
    assert FADING.at(8, 1) == FADING.at(100, 3) == FADING.at(1, 1000) == 1.0
    assert ForwardCost(STAIRS, correction=FADING).seconds(6, 0, 0, 2) == pytest.approx(0.0105)


BAD: list[tuple[list[str | int], Any, str]] = [
    (["linear", "s", 0], 0.0, "linear: the smallest pass must cost more than 0 s"),
    (["linear", "s", 1], math.nan, r"linear.s\[1\]: expected a finite number"),
    (["linear", "new_tokens", 1], 1, "linear.new_tokens: expected increasing numbers|linear.x: expected increasing"),
    (["read", "s", 0], -1.0, r"read.s\[0\]: expected a finite number >= 0, got -1.0"),
    (["per_seq_s"], math.inf, "per_seq_s: expected a finite number"),
    (["per_query_key_pair_s"], "fast", "per_query_key_pair_s: expected a finite number >= 0, got 'fast'"),
    (["correction", "factor", 0, 0], 0.0, "correction.factor: expected numbers > 0"),
    (["correction", "factor", 2, 0], 1.5, "correction.factor: the last row and column must be 1"),
    (["measured", "kv_tokens"], None, "measured.kv_tokens: expected a finite number"),
    (["linear"], [1, 2], "linear: expected an object with new_tokens, s"),
]


def test_a_range_that_is_half_known_is_refused():
    """JSON has no infinity: such a range could not be saved."""
    with pytest.raises(InputError, match="three finite numbers or none"):
        MeasuredRange(new_tokens=48)


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=[".".join(map(str, path)) for path, _, _ in BAD])
def test_loading_refuses_and_names_the_field(path: list[str | int], value: Any, message: str) -> None:
    """F15: a cost must be finite and > 0."""
    cost = ForwardCost(STAIRS, correction=FADING, measured=MeasuredRange(48, 1000, 8))
    document: Any = json.loads(json.dumps(cost.to_dict()))
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError, match=f"^cost.json: target: (?:{message})"):
        ForwardCost.from_dict(document, "cost.json: target")


def test_all_zero_cost_is_refused() -> None:
    with pytest.raises(InputError, match="must cost more than 0 s"):
        ForwardCost.affine(0.0)


def test_host_time_is_per_step_and_sequence() -> None:
    assert HostCost(1e-3, 35e-6, "prior").seconds(64) == pytest.approx(0.00324)
    with pytest.raises(InputError, match=r"host\.base_s"):
        HostCost(math.nan, 0.0, "")


figures = st.floats(0, 1e-3)


@st.composite
def knots(draw: st.DrawFn, first: float) -> Knots:
    x = sorted(draw(st.lists(st.integers(0, 100_000), min_size=1, max_size=6, unique=True)))
    steps = draw(st.lists(st.floats(0, 0.01), min_size=len(x), max_size=len(x)))
    return Knots(tuple(map(float, x)), tuple((first + np.cumsum(steps)).tolist()))


@st.composite
def corrections(draw: st.DrawFn) -> Correction:
    inner = draw(st.lists(st.lists(st.floats(0.5, 2), min_size=2, max_size=2), min_size=2, max_size=2))
    rows = [(*row, 1.0) for row in inner] + [(1.0, 1.0, 1.0)]
    return Correction((1.0, 16.0, 512.0), (1.0, 8.0, 64.0), tuple(rows))


costs = st.builds(
    ForwardCost,
    linear=knots(first=1e-3),
    read=knots(first=0.0),
    per_query_key_pair_s=st.floats(0, 1e-8),
    per_seq_s=st.floats(0, 1e-4),
    correction=st.none() | corrections(),
    capture_sizes=st.sampled_from([(), (1, 2, 4, 8), (16, 512)]),
    measured=st.just(MeasuredRange(512, 10_000, 64)),
)
batches = st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 100_000)), min_size=1, max_size=8)


def sums(batch: list[tuple[int, int]]) -> tuple[int, int, int, int]:
    """(query, context) of each sequence to the four figures a cost depends on."""
    pairs = sum(q * context + q * (q + 1) // 2 for q, context in batch)
    return sum(q for q, _ in batch), sum(q + context for q, context in batch), pairs, len(batch)


@given(costs, st.lists(batches, min_size=1, max_size=5))
def test_arrays_give_what_numbers_give(cost: ForwardCost, many: list[list[tuple[int, int]]]) -> None:
    one_by_one = [cost.seconds(*sums(batch)) for batch in many]
    at_once = cost.seconds(*np.array([sums(batch) for batch in many]).T)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-15)


@given(costs, batches, st.integers(1, 64), st.integers(0, 1000))
def test_larger_batches_never_cost_less(
    cost: ForwardCost, batch: list[tuple[int, int]], more_query: int, more_context: int
) -> None:
    """Holds for the formula; the factor is measured, and `calibrate.fit` bounds it."""
    cost = ForwardCost(
        cost.linear, cost.read, cost.per_query_key_pair_s, cost.per_seq_s, capture_sizes=cost.capture_sizes
    )
    (query, context), *others = batch
    seconds = cost.seconds(*sums(batch))
    slack = 1e-12 * seconds
    assert seconds > 0
    assert cost.seconds(*sums([(query + more_query, context), *others])) >= seconds - slack
    assert cost.seconds(*sums([(query, context + more_context), *others])) >= seconds - slack
    assert cost.seconds(*sums([*batch, (more_query, more_context)])) >= seconds - slack


@given(costs)
def test_file_and_back(cost: ForwardCost) -> None:
    again = ForwardCost.from_dict(json.loads(json.dumps(cost.to_dict(), allow_nan=False)))
    assert again == cost
