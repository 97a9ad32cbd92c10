"""Findings: sentences from frames whose figures are known."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.findings import findings
from tests.analysis.frames import frame, row


def found(*rows):
    return findings(pd.DataFrame(rows))


def sentence(sentences, words):
    (chosen,) = [each for each in sentences if words in each]
    return chosen


def test_the_best_at_each_rate_with_its_gain():
    # 8 against 10 ms: -20 %; at 4/s the two swap
    rows = [row("none", "1", tpot=10), row("dsde", "1", tpot=8), row("none", "4", tpot=10), row("dsde", "4", tpot=12)]
    sentences = found(*rows)
    best = "At 1 requests/s, dsde has the lowest mean time per output token: -20.0 % against none."
    assert sentences[:2] == [best, "At 4 requests/s, none has the lowest mean time per output token."]
    assert "dsde is slower than none at 4 requests/s: +20.0 % mean time per output token." in sentences


def test_neighbouring_rates_are_one_sentence():
    rows = [row(policy, rate, tpot=ms) for policy, ms in (("none", 10), ("dsde", 5)) for rate in ("1", "4", "inf")]
    assert found(*rows)[0] == (
        "From 1 requests/s to all requests at once, dsde has the lowest mean time per output token: -50.0 % against "
        "none at the lowest of these rates, -50.0 % at the highest."
    )


def test_interval_is_that_of_paired_ratios():
    # ratios .8 and .9: geometric mean .8485; t(1) = 12.706, log ratios -.2231 and -.1054, standard error .05889:
    # exp(-.16425 +- .74829) = .40150 and 1.793
    rows = [row("none", seed=s, tpot=10 * (s + 1)) for s in (0, 1)]
    rows += [row("dsde", seed=0, tpot=8), row("dsde", seed=1, tpot=18)]
    assert "-15.1 % [-59.8, +79.3] against none" in found(*rows)[0]


def test_what_noise_explains_is_not_told_apart():
    rows = [row(policy, seed=s, tpot=ms[s]) for policy, ms in (("dsde", (8, 9)), ("bass", (9, 8.5))) for s in (0, 1)]
    assert "within noise of it: bass" in found(*rows)[0]


def test_slower_within_noise_is_not_slower():
    rows = [row(policy, seed=s, tpot=ms[s]) for policy, ms in (("none", (8, 9)), ("bass", (9, 8.5))) for s in (0, 1)]
    assert "No policy is slower than none beyond noise at any rate that was run." in found(*rows)


def test_slower_from_a_rate_on():
    rows = [row("none", rate) for rate in "124"] + [
        row("bass", rate, tpot=ms) for rate, ms in zip("124", (9, 11, 13), strict=True)
    ]
    assert "bass is slower than none from 2 requests/s on: +30.0 % mean time per output token at worst." in found(*rows)


def test_slower_at_a_low_rate_only_is_not_from_there_on():
    rows = [row("none", rate) for rate in "124"] + [
        row("bass", rate, tpot=ms) for rate, ms in zip("124", (11, 12, 8), strict=True)
    ]
    assert (
        "bass is slower than none at 1 requests/s and 2 requests/s: +20.0 % mean time per output token at worst."
        in found(*rows)
    )


def test_capacity_ends_at_the_first_rate_that_is_not_served():
    shares = {"none": (0.95, 0.5, 0.95), "dsde": (0.99, 0.9, 0.2), "bass": (0.1, 0.95, 0.95)}
    rows = [
        row(policy, rate, goodput=["tpot:50"], slo_attainment=share)
        for policy, each in shares.items()
        for rate, share in zip("124", each, strict=True)
    ]
    assert sentence(found(*rows), "stay within") == (
        "At least 90 % of requests stay within TPOT 50 ms up to 2 requests/s with dsde; 1 requests/s with none; no "
        "rate with bass."
    )


def test_what_a_cap_is_worth():
    rows = [
        row("dsde", rate, cap=cap, tpot=ms)
        for rate, cap, ms in (("1", "none", 10), ("4", "none", 20), ("1", "mean", 9.9), ("4", "mean", 15))
    ]
    assert (
        "The cap mean changes the mean time per output token of dsde by -25.0 % at 4 requests/s, where it matters most."
        in found(*rows)
    )


def test_losses_name_the_most_and_the_least():
    sentences = found(
        row("dsde", wasted_verify_share=0.5),
        row("bass", wasted_verify_share=0.8),
        row("oracle", wasted_verify_share=0.0),
    )
    assert "bass: 80 % of the tokens that it verifies are rejected, the most; dsde: 50 %, the least." in sentences


def test_regret_over_rates():
    rows = [row("oracle:goodput", rate, tpot=10) for rate in "14"]
    rows += [row("dsde", "1", tpot=11), row("dsde", "4", tpot=13)]
    assert "dsde comes closest to oracle:goodput" in sentence(found(*rows), "oracle")
    assert "20.0 % more mean time per output token in the mean over rates, 10.0 to 30.0 % by rate." in sentence(
        found(*rows), "oracle"
    )


def test_lossy_is_said():
    assert sentence(found(row("dsde", lossless=False)), "LOSSY").startswith("LOSSY: dsde let tokens stand")


@pytest.mark.parametrize(("seeds", "said"), [((0,), True), ((0, 1), False)])
def test_one_seed_is_said(seeds, said):
    assert any("One seed was run" in each for each in findings(frame(seeds=seeds))) is said


def test_extrapolation_is_said():
    sentences = found(row("dsde", forward_passes=200.0, forward_passes_outside_measured=50.0))
    assert sentence(sentences, "measured range").startswith("25 % of forward passes lie beyond")


def test_nothing_to_compare():
    assert findings(frame(error="no memory")) == ["No run ended well: there is nothing to compare."]


def test_no_baseline():
    assert "No policy can be held against plain decoding: none was not run." in findings(frame(("dsde", "bass")))
