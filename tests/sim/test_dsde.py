"""DSDE's rule by hand. Worked values: WVIR and k of a given history, and the warm-up of both presets step by step."""

from __future__ import annotations

import numpy as np
import pytest

from sim.policies.dsde import code, paper, scaled_length, wvir
from sim.policies.history import DecayedVariance, History
from tests.sim.policy_driver import batch, outcome, policy
from traces.errors import InputError

KLD = [0.1, 0.2, 0.05, 0.4, 0.3, 0.1, 0.0, 0.6, 0.2, 0.1, 0.05, 0.15]


@pytest.mark.parametrize(("preset", "expected"), [(code(12), 0.109251), (paper(), 1.060238)])
def test_wvir_of_a_known_history(preset, expected):
    history = History(1, preset.warm_up)
    slot = np.array([0])
    history.append(slot, np.array([KLD]), np.array([len(KLD)]))
    values, count = history.values, history.count
    short, long = DecayedVariance(preset.warm_up, preset.decay, preset.short_window, preset.long_window)(values, count)
    assert wvir(short, long, count)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "mean", "low", "high", "k"),
    [
        # SF = exp(2 m) - 1; k = ceil(low + (1 - ratio SF)(high - low))
        (1.0, 0.1, 2, 10, 9),  # SF .2214: 2 + .7786 * 8 = 8.23
        (0.5, 0.3, 1, 8, 6),  # SF .8221: 1 + .5889 * 7 = 5.12
        (2.0, 0.3, 2, 10, 2),  # product above 1
        (0.0, 5.0, 2, 10, 10),  # product 0
        (1.0, 0.34657359, 2, 10, 3),  # SF 1 at m = ln(2) / 2 up to the last digits: just above SL_min
        (0.5, 400.0, 2, 10, 2),  # exp overflows: SL_min
        (0.0, 400.0, 2, 10, 2),  # 0 * inf: SL_min
    ],
)
def test_scaled_length(ratio, mean, low, high, k):
    args = [np.array([value], float) for value in (ratio, mean, low, high)]
    assert np.ceil(scaled_length(*args)[0]) == k


def test_wvir_guards():
    # one value: 0 (F54); a constant long window: 20; otherwise the ratio
    ratio = wvir(np.array([0.0, 0.0, 0.3]), np.array([0.0, 0.0, 0.6]), np.array([1, 9, 9]))
    assert ratio.tolist() == [0.0, 20.0, 0.5]


def test_paper_warms_up_with_five_until_thirty_tokens():
    # k = 5 a step: 30 tokens are known after the 6th verification, and only then k changes.
    # All accepted: A_max = 5; KLD 0.1 and 0.2 by turns in each row: mean .14, max .2: SL_max = 5 (1 + .7) = 8.5
    rule = policy("dsde", num_slots=1)
    row, seen = [0.1, 0.2, 0.1, 0.2, 0.1], []
    for _ in range(6):
        seen.append(int(rule.lengths(batch([0]))[0]))
        rule.observe(batch([0]), outcome([5], [5], [row]))
    assert seen == [5] * 6
    assert rule.k_max[0] == pytest.approx(8.5)
    # WVIR of this history: computed from the definition below; SF = exp(.28) - 1 = .3231
    ages = np.arange(30)
    x = np.array(row * 6)[::-1]

    def variance(n):
        w = 0.85 ** ages[:n]
        mean = (w * x[:n]).sum() / w.sum()
        return (w * (x[:n] - mean) ** 2).sum() / w.sum()

    expected = round(2 + (1 - variance(10) / variance(30) * (np.exp(0.28) - 1)) * 6.5)
    assert rule.lengths(batch([0]))[0] == expected == 6


def test_code_doubles_while_everything_is_accepted():
    # start 5; all accepted: 10, 20, stays at max_spec 20
    rule = policy("dsde:preset=code", num_slots=1)
    seen = []
    for _ in range(3):
        k = int(rule.lengths(batch([0]))[0])
        seen.append(k)
        rule.observe(batch([0]), outcome([k], [k], [[0.1] * k]))
    assert [*seen, int(rule.lengths(batch([0]))[0])] == [5, 10, 20, 20]


def test_code_never_shrinks_while_it_warms_up():
    # nothing accepted: max(5, min_spec 6) = 6 and stays
    rule = policy("dsde:preset=code", num_slots=1)
    seen = []
    for _ in range(3):
        k = int(rule.lengths(batch([0]))[0])
        seen.append(k)
        rule.observe(batch([0]), outcome([k], [0], [[0.1] * k]))
    assert seen == [5, 6, 6]


def test_a_new_sequence_forgets_its_predecessor():
    rule = policy("dsde", num_slots=2)
    for _ in range(6):
        rule.observe(batch([0, 1]), outcome([5, 5], [0, 0], [[0.9] * 5] * 2))
    rule.begin(np.array([1]))
    assert rule.lengths(batch([0, 1])).tolist() == [2, 5]  # SL_min after an empty calibration; the start value


def test_k_stays_finite_with_infinite_divergence():
    rule = policy("dsde", num_slots=1)
    for _ in range(8):
        k = int(rule.lengths(batch([0]))[0])
        rule.observe(batch([0]), outcome([k], [0], [[np.inf, np.nan, *[1.0] * k][:k]]))
    assert rule.lengths(batch([0]))[0] == 2


def test_a_step_without_draft_keeps_the_last_mean():
    rule = policy("dsde", num_slots=1)
    for _ in range(6):
        rule.observe(batch([0]), outcome([5], [3], [[0.1, 0.2, 0.1, 0.2, 0.1]]))
    before = int(rule.lengths(batch([0]))[0])
    rule.observe(batch([0]), outcome([0], [0], [[]]))
    assert rule.lengths(batch([0]))[0] == before


def test_code_caps_only_what_has_left_its_warm_up():
    # slot 0 is calibrated, slot 1 is not: the cap is the mean of slot 0 alone, and slot 1 goes on doubling
    rule = policy("dsde:preset=code,min_spec=2,max_spec=8,activation_tokens=10", num_slots=2, cap="mean")
    for _ in range(3):
        k = int(rule.lengths(batch([0]))[0])
        rule.observe(batch([0]), outcome([k], [k], [[0.1 + 0.01 * i for i in range(k)]]))
    assert rule.calibrated.tolist() == [True, False]
    k = rule.lengths(batch([0, 1]))
    rule.observe(batch([0, 1]), outcome(k, k, [[0.1] * n for n in k]))
    assert rule.lengths(batch([0, 1]))[1] == 8  # 2 * 5, at most 8


@pytest.mark.parametrize(
    "spec",
    ["dsde:preset=fast", "dsde:min_spec=5,max_spec=3", "dsde:activation_tokens=30", "dsde:k=3", "dsde:initial=-1"],
)
def test_bad_options(spec):
    with pytest.raises(InputError, match="policy dsde"):
        policy(spec)
