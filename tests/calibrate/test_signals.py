"""Probabilities after sampling settings, and what is measured on pairs of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from calibrate import signals  # noqa: E402
from calibrate.signals import Sampling  # noqa: E402
from traces.errors import InputError  # noqa: E402


def law(*values: float) -> Any:
    return torch.tensor([values], dtype=torch.float32)


def logits(*values: float) -> Any:
    return torch.tensor([values]).log()


P, Q = law(0.6, 0.4), law(0.7, 0.3)
ONE = Sampling(temperature=1.0)


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    """.6 alone reaches .5."""
    found = signals.probabilities(logits(0.6, 0.3, 0.1), Sampling(1.0, top_p=0.5))
    assert found.tolist() == [[1, 0, 0]]


def test_top_k_is_renormalised() -> None:
    """F38: of .6 .3 .1 the first two are left, .6 / .9 and .3 / .9."""
    found = signals.probabilities(logits(0.6, 0.3, 0.1), Sampling(1.0, top_k=2))
    assert found[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0])


@pytest.mark.parametrize("temperature", [0.0, 1e-8, 1e-5, 1e-320])
def test_small_temperatures_are_the_argmax(temperature: float) -> None:
    found = signals.probabilities(torch.tensor([[1.0, 30.0, -20.0]]), Sampling(temperature))
    assert found.tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"temperature": math.nan}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expected"):
        Sampling(**settings)


def test_nothing_proposed_is_probability_zero() -> None:
    nothing = torch.full((1, 3), -math.inf)
    assert [signals.probabilities(nothing, s).sum().item() for s in (Sampling(), ONE)] == [0, 0]


def test_entropy_of_a_fair_coin_and_a_zero() -> None:
    assert signals.entropy(law(0.5, 0.5, 0)).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        ((1.0, 0.0), (0.5, 0.5), math.log(2)),
        # .5 ln(.5 / 1) + .5 ln(.5 / 1e-8): infinite but for the floor
        ((0.5, 0.5), (1.0, 0.0), 0.5 * math.log(0.5) + 0.5 * math.log(0.5 / 1e-8)),
        ((0.0, 1.0), (1.0, 0.0), -math.log(1e-8)),
        ((0.3, 0.7), (0.3, 0.7), 0.0),
    ],
)
def test_divergence_is_finite_where_a_probability_is_zero(
    p: tuple[float, ...], q: tuple[float, ...], expected: float
) -> None:
    assert signals.kl_divergence(law(*p), law(*q)).item() == pytest.approx(expected, abs=1e-6)


def test_js_distance_of_disjoint_laws_is_its_maximum() -> None:
    assert signals.js_distance(law(1, 0), law(0, 1)).item() == pytest.approx(math.sqrt(math.log(2)))


def test_js_distance_equals_scipy() -> None:
    scipy = pytest.importorskip("scipy.spatial.distance")
    p, q = torch.rand(5, 50, generator=torch.Generator().manual_seed(0)).softmax(-1), torch.full((5, 50), 0.02)
    expected = [scipy.jensenshannon(a, b) for a, b in zip(p.double().numpy(), q.double().numpy(), strict=True)]
    assert signals.js_distance(p, q).tolist() == pytest.approx(expected, abs=1e-6)


def test_half_precision_logits_with_infinities_are_finite() -> None:
    target = torch.tensor([[1.0, -math.inf, 3.0]], dtype=torch.float16)
    draft = torch.tensor([[-math.inf, 2.0, 60000.0]], dtype=torch.float16)
    found = signals.compare(target, draft, torch.tensor([2]), ONE)
    assert all(bool(torch.isfinite(value).all()) for value in found.values())


def test_acceptance_of_draws_is_not_that_of_equality() -> None:
    """F41: sum min(p, q) = .6 + .3; equal draws would be .6 * .7 + .4 * .3 = .54."""
    assert signals.overlap(P, Q).item() == pytest.approx(0.9)


def test_acceptance_along_a_text_has_the_mean_of_acceptance_of_drafts() -> None:
    """sum p(y) min(1, q(y) / p(y)) = sum min(p, q) = sum q(x) min(1, p(x) / q(x)): .6 * 1 + .4 * .75 = .9."""
    token = torch.tensor([0, 1])
    p, q = P.expand(2, 2), Q.expand(2, 2)
    along = signals.ratio(signals.of_token(q, token), signals.of_token(p, token))
    live = signals.ratio(signals.of_token(p, token), signals.of_token(q, token))
    assert ((along * P[0]).sum().item(), (live * Q[0]).sum().item()) == pytest.approx((0.9, 0.9))


def test_residual() -> None:
    """F40: (.5 - .8)+ = 0, .5 - 0, (0 - .2)+ = 0: all of it on the second."""
    assert signals.residual(law(0.5, 0.5, 0), law(0.8, 0, 0.2)).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize("shift", [0.0, 6e-8])
def test_residual_of_equal_laws_is_the_law(shift: float) -> None:
    p = law(0.5, 0.5)
    assert signals.residual(p, p + torch.tensor([[shift, -shift]])).tolist() == p.tolist()


def test_draws_follow_the_law() -> None:
    """20,000 draws: standard error of a share of .5 is .0035."""
    luck = torch.rand(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = signals.draw(law(0.5, 0.0, 0.3, 0.2, 0.0).expand(len(luck), 5), luck)
    shares = torch.bincount(found, minlength=5) / len(luck)
    assert shares.tolist() == pytest.approx([0.5, 0, 0.3, 0.2, 0], abs=0.012)


def test_extreme_luck_never_draws_the_impossible() -> None:
    luck = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    assert signals.draw(law(0.0, 0.7, 0.3, 0.0).expand(2, 4), luck).tolist() == [1, 2]


def test_signals_of_greedy_decoding_are_those_of_the_softmax() -> None:
    """Not of one-hot vectors, whose divergences are 0 or 18.42 nats."""
    found = signals.compare(logits(0.6, 0.4), logits(0.7, 0.3), torch.tensor([0]), Sampling())
    kld = 0.6 * math.log(0.6 / 0.7) + 0.4 * math.log(0.4 / 0.3)
    assert (found["kld"].item(), found["draft_prob"].item()) == pytest.approx((kld, 0.7), abs=1e-6)
