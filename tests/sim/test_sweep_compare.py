"""Means over seeds and paired differences, from frames small enough to do by hand."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from sim.sweep import paired, summary
from traces.errors import InputError

RATES = {"4": 0, "8": 100}


def frame() -> pd.DataFrame:
    """TPOT of `none` is 10, 20, 30 over the seeds, 100 more at 8 req/s; `fixed:k=4` takes 1 less at every seed."""
    rows = [
        {"policy": policy, "cap": "none", "acceptance_rule": "lossless", "request_rate": rate, "seed": seed}
        | {"error": None, "mean_tpot_ms": 10.0 * (seed + 1) + RATES[rate] - faster}
        for rate in RATES
        for policy, faster in (("none", 0), ("fixed:k=4", 1))
        for seed in (0, 1, 2)
    ]
    return pd.DataFrame(rows)


def test_a_row_per_setting_with_its_interval():
    rows = summary(frame(), ["mean_tpot_ms"])
    assert list(rows["request_rate"] + rows["policy"]) == ["4none", "4fixed:k=4", "8none", "8fixed:k=4"]
    first = rows.iloc[0]
    # 10, 20, 30: mean 20, standard deviation 10, t(2) = 4.3027: half width 4.3027 * 10 / sqrt(3) = 24.84
    assert (first["n"], first["mean_tpot_ms"]) == (3, 20)
    assert first["mean_tpot_ms_high"] - 20 == pytest.approx(24.841, abs=1e-3)


def test_pairs_cancel_what_seeds_share():
    # by seed the difference is -1 each time: no spread, though the values spread by 10
    rows = paired(frame(), "none", ["mean_tpot_ms"])
    assert list(rows["difference"]) == [-1, -1]
    assert list(rows["difference_high"]) == [-1, -1]
    assert list(rows["n"]) == [3, 3]


def test_the_ratio_is_the_geometric_mean_over_seeds():
    rows = paired(frame(), "none", ["mean_tpot_ms"])
    assert rows["ratio"].iloc[0] == pytest.approx((9 / 10 * 19 / 20 * 29 / 30) ** (1 / 3))


def test_only_seeds_that_both_have_make_pairs():
    rows = paired(frame().drop(index=0), "none", ["mean_tpot_ms"])  # none at 4 req/s lost its seed 0
    assert list(rows["n"]) == [2, 3]


def test_failed_runs_are_left_out():
    whole = frame()
    whole.loc[0, "error"], whole.loc[0, "mean_tpot_ms"] = "boom", math.nan
    assert summary(whole, ["mean_tpot_ms"]).iloc[0]["mean_tpot_ms"] == 25  # of 20 and 30
    assert summary(whole, ["mean_tpot_ms"]).iloc[0]["n"] == 2


def test_one_seed_has_a_difference_and_no_interval():
    row = paired(frame().query("seed == 0"), "none", ["mean_tpot_ms"]).iloc[0]
    assert row["difference"] == -1
    assert math.isnan(row["difference_low"])


def test_an_undefined_setting_pairs_with_itself():
    whole = frame()
    whole["acceptance_rate"] = [None] * 6 + [0.5] * 6
    assert list(paired(whole, "none", ["mean_tpot_ms"])["n"]) == [3, 3]


def test_a_baseline_that_did_not_run():
    with pytest.raises(InputError, match="no run of the baseline dsde; policies of this sweep: none, fixed:k=4"):
        paired(frame(), "dsde")


def test_metrics_that_no_run_has():
    with pytest.raises(InputError, match="none of the metrics speed"):
        summary(frame(), ["speed"])
