"""The fit: costs that are known come back, noise does not break the rules, kinks are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.fit import FloatArray, Points, fit, residuals
from sim.replay.cost import Correction, ForwardCost, Knots
from traces.errors import InputError

NUM_SEQS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256])
QUERY = np.array([1, 2, 3, 5, 9, 17, 128])
CONTEXT = np.array([0, 64, 512, 1024, 4096, 16384])


def grid(cost: ForwardCost, noise: float = 0.0, seed: int = 0) -> Points:
    """Passes of even batches that cost what `cost` says, with relative noise."""
    s, q, c = (a.ravel() for a in np.meshgrid(NUM_SEQS, QUERY, CONTEXT, indexing="ij"))
    exact = cost.seconds(s * q, s * (c + q), s * (q * c + q * (q + 1) / 2), s)
    factor = np.exp(noise * np.random.default_rng(seed).standard_normal(len(exact)))
    phase = np.where(q == 1, "decode", np.where(q < 128, "verify", "prefill"))
    even = Points.even("decode", s, q, c, exact * factor)
    return Points(phase, even.new_tokens, even.kv_tokens, even.query_key_pairs, even.num_seqs, even.seconds)


def test_features_of_an_even_batch() -> None:
    points = Points.even("verify", 3, 5, 100, 0.01)
    # 3 sequences: 15 new tokens, 3 * 105 keys read, 3 * (5 * 100 + 1 + 2 + 3 + 4 + 5) pairs
    assert (points.new_tokens[0], points.kv_tokens[0], points.query_key_pairs[0]) == (15, 315, 1545)


def test_an_affine_cost_comes_back() -> None:
    true = ForwardCost.affine(0.008, per_token_s=2e-5, per_kv_token_s=3e-8, per_query_key_pair_s=2e-10, per_seq_s=1e-5)
    fitted = fit(grid(true))
    assert fitted.residuals["all"].worst_percent < 0.2
    assert fitted.cost.correction is None  # nothing left for it to say
    # a ragged batch that was not measured: queries 1, 7, 300 on 5000, 40 and 0 tokens
    ragged = (308, 5348, 5001 + 7 * 40 + 28 + 45150, 3)
    assert fitted.cost.seconds(*ragged) == pytest.approx(true.seconds(*ragged), rel=0.005)


def test_a_kink_is_kept() -> None:
    """Flat to 64 tokens, then 40 microseconds a token: a straight line would miss 64 tokens by far."""
    true = ForwardCost(Knots((1.0, 64.0, 65.0), (0.010, 0.010, 0.01004)))
    cost = fit(grid(true)).cost
    assert cost.seconds(64, 0, 0, 1) == pytest.approx(0.010, rel=0.01)
    assert cost.seconds(1088, 0, 0, 1) == pytest.approx(0.010 + 1024 * 4e-5, rel=0.01)


def test_a_systematic_residual_goes_into_the_factor() -> None:
    """A kernel that is 30 % slower around 64 sequences of 5 tokens."""
    factor = np.ones((5, 6))
    factor[2:4, 2:4] = 1.3
    bump = Correction((1, 16, 64, 256, 1024), (1, 2, 4, 17, 64, 256), tuple(map(tuple, factor.tolist())))
    true = ForwardCost.affine(0.008, per_token_s=2e-5, per_kv_token_s=3e-8)
    points = grid(ForwardCost(true.linear, true.read, correction=bump))
    plain, corrected = fit(points, correct=False), fit(points)
    assert corrected.cost.correction is not None
    assert corrected.residuals["all"].p95_percent < 0.8 * plain.residuals["all"].p95_percent


def even_seconds(cost: ForwardCost, s: FloatArray, q: FloatArray, c: FloatArray) -> FloatArray:
    return cost.seconds(s * q, s * (c + q), s * (q * c + q * (q + 1) / 2), s)


BATCHES = np.meshgrid(np.exp2(np.arange(9)), [1.0, 2.0, 4.0, 8.0, 17.0, 64.0], [0.0, 1024.0, 8192.0], indexing="ij")
KNOWN = ForwardCost.affine(0.008, per_token_s=2e-5, per_kv_token_s=3e-8, per_query_key_pair_s=2e-10)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.3))
def test_noise_never_makes_a_larger_batch_cheaper(seed: int, noise: float) -> None:
    seconds = even_seconds(fit(grid(KNOWN, noise, seed), correct=False).cost, *BATCHES)
    assert (seconds > 0).all()
    for axis in range(3):  # more sequences, more query tokens, more context
        assert (np.diff(seconds, axis=axis) >= 0).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.1))
def test_the_factor_makes_a_larger_batch_at_most_a_little_cheaper(seed: int, noise: float) -> None:
    """At most 2 % for a quarter more sequences or query tokens; twice that between the places that are checked."""
    cost = fit(grid(KNOWN, noise, seed), correct=True).cost
    s, q, c = BATCHES
    seconds = even_seconds(cost, s, q, c)
    assert (seconds > 0).all()
    assert (even_seconds(cost, s * 1.25, q, c) > 0.96 * seconds).all()
    assert (even_seconds(cost, s, q * 1.25, c) > 0.96 * seconds).all()


def test_smallest_pass_costs_something_even_if_all_time_is_in_the_cache_reads() -> None:
    points = Points.even("decode", NUM_SEQS, 1, 1000, 1e-6 * NUM_SEQS)
    assert fit(points).cost.linear.y[0] > 0


def test_residuals_by_phase_and_worst_point() -> None:
    points = Points.even("decode", [1, 2, 4], 1, 0, [0.010, 0.010, 0.020])
    cost = ForwardCost(Knots((1.0,), (0.010,)))
    found = residuals(points, cost)
    # 0, 0 and 50 percent off
    assert (found["all"].median_percent, found["decode"].worst_percent) == (0.0, 50.0)
    assert set(found) == {"all", "decode"}


def test_a_fit_names_its_range_and_its_worst_points() -> None:
    fitted = fit(grid(ForwardCost.affine(0.008, per_token_s=2e-5)))
    assert fitted.cost.measured.num_seqs == 256
    assert fitted.cost.outside(1, 1, 257)
    assert fitted.worst[0].startswith(("decode:", "verify:", "prefill:"))


def test_capture_sizes_are_kept() -> None:
    assert fit(grid(ForwardCost.affine(0.008)), capture_sizes=(8, 16)).cost.capture_sizes == (8, 16)


@pytest.mark.parametrize("seconds", [0.0, -1.0, np.nan])
def test_points_without_a_time_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="seconds > 0"):
        Points.even("decode", 1, 1, 0, seconds)
