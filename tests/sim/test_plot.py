"""The figure: drawn without a display, from any run, the same bytes each time (F65, F66)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.plot import BINS, _mean_over_time, check_path, figure, plot
from tests.sim.eventlogs import Scribe, workload
from tests.sim.runs import busy, empty, results_of, small
from traces.errors import InputError

ROOT = Path(__file__).parents[2]


def one_step():
    return results_of(Scribe(workload([8], [1])).arrive().step(0.0, 0.1, [(0, 1)]).finish(0))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_same_run_same_bytes(tmp_path, kind):
    for name in "ab":
        plot(busy(30), tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert sorted(os.listdir(tmp_path)) == [f"a.{kind}", f"b.{kind}"]


@pytest.mark.parametrize("run", [empty, one_step, small])
def test_little_to_draw_draws_without_a_warning(tmp_path, run):
    plot(run(), tmp_path / "a.svg")


def test_names_that_the_font_lacks(tmp_path):
    run = small()
    plot(replace(run, provenance=replace(run.provenance, trace="対話 $x^2$ é")), tmp_path / "a.png")


def test_every_panel_has_title_and_units():
    titles = [(axes.get_title(loc="left"), axes.get_xlabel()) for axes in figure(busy(30)).axes]
    assert titles == [
        ("Load", "time, s"),
        ("Speculation", "time, s"),
        ("Time of a step, mean", "ms"),
        ("Latency of completed requests", "ms"),
    ]


def test_figure_says_where_it_comes_from():
    text = figure(small()).get_supxlabel()
    for words in ("sampled from ShareGPT V3", "h100-llama-3.1-70b-tp8 (0123abcd)", "seed 7", "synthetic: acceptance"):
        assert words in text.replace("\n", " ")


def test_mean_over_time_is_exact():
    # replica 0: 4 waiting in [0, 1), none in [1, 3), 2 in [3, 4); replica 1: 1 in [0, 4). Means over [0, 2) and [2, 4)
    scribe = Scribe(workload([8], [9])).arrive()
    scribe.step(0.0, 1.0, waiting=4).step(0.0, 4.0, waiting=1, replica=1).step(3.0, 4.0, waiting=2)
    mean = _mean_over_time(scribe.log.step_columns(), "waiting", np.array([0.0, 2.0, 4.0]))
    assert mean == pytest.approx([4 / 2 + 1, 2 / 2 + 1])


def test_curves_have_as_many_points_as_bins():
    load, speculation, *_ = figure(busy(30)).axes
    assert {len(line.get_xdata()) for line in (*load.lines, *speculation.lines)} == {BINS}


@pytest.mark.parametrize("backend", [None, "TkAgg"])
def test_needs_no_display(tmp_path, backend):
    # F66: no display, and a backend that would need one
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")}
    environment |= {"MPLBACKEND": backend} if backend else {}
    code = (
        "import sys; from sim.plot import plot; from tests.sim.runs import small; plot(small(), sys.argv[1]);"
        "sys.exit(any(name in sys.modules for name in ('tkinter', 'matplotlib.pyplot')))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.png")], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["a.jpg", "a", ".png.txt", "no/such/a.png"])
def test_refuses_before_it_draws(tmp_path, name):
    with pytest.raises(InputError, match="plot"):
        check_path(tmp_path / name)
    with pytest.raises(InputError, match="plot"):
        plot(small(), tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match="No space left"):
        plot(small(), tmp_path / "a.png")
    assert os.listdir(tmp_path) == []
