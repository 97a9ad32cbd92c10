"""Frames from runs, labels of series, and what cannot be read."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.frame import frame_of, read_frame, varying, with_series
from analysis.replay import config_of
from sim.config import SimConfig
from sim.simulate import simulate
from tests.analysis.frames import frame, row
from traces.errors import InputError

CONFIG = SimConfig(trace="random", num_prompts=6, request_rate="20", policy="fixed:k=2", acceptance="iid:0.7")


def series(*rows, axes=("request_rate",)):
    return list(with_series(pd.DataFrame(rows), *axes)["series"])


def test_a_cap_of_its_own_is_not_named_and_another_is():
    assert series(row("dsde"), row("fixed", cap="mean")) == ["dsde", "fixed, cap mean"]


def test_several_caps_of_a_policy_are_all_named():
    assert series(row("dsde"), row("dsde", cap="none")) == ["dsde, cap mean", "dsde, cap none"]


def test_acceptance_rule_of_another():
    assert series(row("dsde", acceptance_rule="typical")) == ["dsde, rule typical"]


def test_every_other_setting_that_varies_sets_series_apart():
    assert series(row("dsde", block_size=16), row("dsde", block_size=32)) == [
        "dsde | block size 16",
        "dsde | block size 32",
    ]


def test_rates_and_seeds_do_not_set_series_apart():
    assert set(series(row("dsde", "1"), row("dsde", "2", seed=1))) == {"dsde"}


def test_a_setting_that_follows_the_rate_does_not_vary():
    runs = pd.DataFrame([row("dsde", "1", num_prompts=10), row("dsde", "2", num_prompts=20)])
    assert (varying(runs, "request_rate"), set(varying(runs))) == ([], {"request_rate", "num_prompts"})


def test_failed_runs_are_left_out():
    assert series(row("dsde"), row("fixed", error="no memory")) == ["dsde"]


def test_policy_that_cannot_be_imported_here():
    assert series(row("elsewhere:Mine", cap="none")) == ["elsewhere:Mine, cap none, rule lossless"]


def test_a_saved_run_is_a_row(tmp_path):
    run = simulate(CONFIG)
    for directory in (tmp_path, tmp_path / "a", tmp_path / "b"):
        run.save(directory)
    pd.testing.assert_frame_equal(read_frame(tmp_path / "a"), frame_of([run]))
    assert len(read_frame(tmp_path)) == 3


def test_settings_of_a_row_give_the_run_again():
    run = simulate(CONFIG)
    again = simulate(config_of(frame_of([run]).iloc[0]))
    assert again.metrics == run.metrics
    assert again.to_frame().equals(run.to_frame())


def test_a_table_has_numbers_where_settings_are_undefined():
    # parquet has no missing whole number: 64.0 is 64 and NaN the default
    values = frame(("dsde",), max_concurrency=64.0, num_gpu_blocks=float("nan")).iloc[0]
    config = config_of(values)
    assert (repr(config.max_concurrency), config.num_gpu_blocks) == ("64", None)


def test_directory_of_something_else(tmp_path):
    with pytest.raises(InputError, match=r"neither runs.parquet of a sweep nor results.json of a run"):
        read_frame(tmp_path)
