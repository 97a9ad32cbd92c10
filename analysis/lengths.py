"""The draft length k: over time and its distribution, for one run or for several by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.frame import need, runs_of, steps_of
from analysis.style import legend_below, styles
from sim.plot import binned_ratio
from sim.results import Results, SavedResults
from sim.style import BLUE, GREEN, ORANGE, drawable, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 120
HISTOGRAM = "acceptance_histogram_by_draft_length"


def k_over_time(data: Any, axes: Axes, among: Iterable[str] = ()) -> Axes:
    """Mean k of the batch over time; of one run also the longest k and what was accepted.

    data   a run (Results, SavedResults with steps, or its frame of steps), or several by name
    among  names of all series, so that colours are those of other figures
    """
    title = "Draft length over time"
    runs = {label: steps_of(run, "k_over_time") for label, run in runs_of(data).items()}
    for steps in runs.values():
        if len(steps):
            need(steps, "k_over_time", "end_s", "num_decode", "drafted", "accepted", "max_draft")
    runs = {label: steps for label, steps in runs.items() if len(steps) and steps["num_decode"].any()}
    if not runs:
        nothing(axes, title, "no steps")
        return axes
    edges = np.linspace(0.0, max(float(steps["end_s"].max()) for steps in runs.values()), BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    if len(runs) == 1:
        (steps,) = runs.values()
        mean, longest, accepted = (_binned(steps, name, edges) for name in ("drafted", "max_draft", "accepted"))
        axes.fill_between(middle, mean, longest, color=ORANGE, alpha=0.15, linewidth=0)
        axes.plot(middle, longest, color=ORANGE, label="longest k of the batch")
        axes.plot(middle, mean, color=BLUE, linestyle="--", label="mean k")
        axes.plot(middle, accepted, color=GREEN, linestyle="-.", label="accepted")
    else:
        look = styles([*among, *runs])
        for label, steps in runs.items():
            axes.plot(middle, _binned(steps, "drafted", edges), label=drawable(label), markevery=12, **look[label])
    axes.set(title=title, xlabel="time, s", ylabel="draft tokens per sequence and step", xlim=(0, edges[-1]))
    axes.set_ylim(bottom=0)
    legend_below(axes)
    return axes


def _binned(steps: pd.DataFrame, name: str, edges: Any) -> Any:
    """Per sequence and step; the longest k is one number of a step and not a sum over its sequences."""
    columns = {str(column): steps[column].to_numpy(np.float64) for column in steps}
    decoding = columns["num_decode"] > 0
    if name == "max_draft":
        return binned_ratio(columns, edges, columns[name] * decoding, decoding)
    return binned_ratio(columns, edges, columns[name], columns["num_decode"])


def k_distribution(data: Any, axes: Axes, among: Iterable[str] = ()) -> Axes:
    """How often each k was drafted, a row of bars per run; the mean as a line.

    data   a run (Results, SavedResults, or its frame of requests), or several by name. From a saved run k is what was
           verified, without the steps of k = 0, which requests.parquet does not count
    among  names of all series, so that colours are those of other figures
    """
    title = "Distribution of draft lengths"
    counts = {label: _counts(run) for label, run in runs_of(data).items()}
    counts = {label: each for label, each in counts.items() if each.sum()}
    if not counts:
        nothing(axes, title, "nothing was drafted")
        return axes
    look = styles([*among, *counts])
    for row, (label, each) in enumerate(counts.items()):
        share, floor = each / each.max(), len(counts) - 1 - row
        axes.bar(np.arange(len(each)), 0.85 * share, 0.8, floor, color=look[label]["color"])
        mean = float(np.average(np.arange(len(each)), weights=each))
        axes.plot([mean, mean], [floor, floor + 0.9], color="black", linewidth=1.2)
        right = axes.get_yaxis_transform()
        axes.text(1.01, floor + 0.4, f"{mean:.1f}", fontsize=8, va="center", transform=right)
        axes.axhline(floor, color="#9a9a9a", linewidth=0.6)
    axes.set_yticks(np.arange(len(counts))[::-1] + 0.4, [drawable(label) for label in counts])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(0, len(counts) + 0.05)
    axes.set(title=title, xlabel="k, draft tokens of a sequence in a step; black line and right: mean")
    return axes


def _counts(run: Any) -> Any:
    """[k] how many (sequence, step) pairs drafted k."""
    if isinstance(run, Results):
        proposed = run.log.emissions["proposed"]
        return np.bincount(proposed[proposed >= 0])
    requests = run.requests if isinstance(run, SavedResults) else run
    if requests.empty:
        return np.zeros(1, np.int64)
    need(requests, "k_distribution", HISTOGRAM)
    rows = [(int(k), sum(counts)) for each in requests[HISTOGRAM] for k, counts in (each or {}).items()]
    return np.bincount(*np.array(rows, np.int64).reshape(-1, 2).T)
