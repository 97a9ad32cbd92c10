"""What is lost and where the time goes, a bar per policy: stragglers, wasted verification, parts of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.frame import need, with_series
from analysis.style import HATCHES, legend_below
from sim.style import BLUE, TIME_PARTS, VERMILLION, drawable, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHARES = {
    "draft_idle_share": ("straggler share: slots of the draft that wait for the longest", VERMILLION, "s", -0.16),
    "wasted_verify_share": ("waste: verified tokens that were rejected", BLUE, "o", 0.16),
}


def straggler_and_waste(frame: pd.DataFrame, axes: Axes) -> Axes:
    """Per policy the mean over its runs as a point and their range as a line: one value for each rate and seed."""
    title = "Stragglers and waste"
    if frame.empty or (runs := _runs(frame, "straggler_and_waste", *SHARES)).empty:
        nothing(axes, title, "no runs")
        return axes
    labels = list(dict.fromkeys(runs["series"]))
    row_of = runs["series"].map({label: row for row, label in enumerate(labels)})
    for name, (words, colour, marker, shift) in SHARES.items():
        by_row = 100 * runs[name].groupby(row_of).agg(["min", "mean", "max"]).dropna()
        at = by_row.index.to_numpy(np.float64) + shift
        axes.hlines(at, by_row["min"], by_row["max"], color=colour, linewidth=2, alpha=0.55)
        axes.plot(by_row["mean"], at, marker, color=colour, markersize=5, label=words)
    _rows(axes, labels)
    axes.set(title=title, xlabel="percent; mean and range over rates and seeds", xlim=(0, 100))
    legend_below(axes)
    return axes


def time_split(frame: pd.DataFrame, axes: Axes) -> Axes:
    """Per policy the shares of draft, verification, prefill and host in the busy time of all its runs."""
    title = "Where the time goes"
    parts = [f"{part}_time_s" for part in TIME_PARTS]
    if frame.empty or (runs := _runs(frame, "time_split", *parts)).empty:
        nothing(axes, title, "no runs")
        return axes
    sums = runs.groupby("series", sort=False)[parts].sum()
    percents = 100 * sums.div(sums.sum(axis=1).replace(0, np.nan), axis=0).fillna(0)
    left = np.zeros(len(percents))
    for (part, colour), column in zip(TIME_PARTS.items(), parts, strict=True):
        width, rows = percents[column].to_numpy(), range(len(percents))
        axes.barh(
            rows, width, 0.7, left, color=colour, hatch=HATCHES[part], edgecolor="white", linewidth=0.4, label=part
        )
        left += width
    _rows(axes, [str(label) for label in percents.index])
    axes.set(title=title, xlabel="percent of busy time", xlim=(0, 100))
    legend_below(axes)
    return axes


def _rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), [drawable(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _runs(frame: pd.DataFrame, figure: str, *columns: str) -> pd.DataFrame:
    need(frame, figure, "policy", *columns)
    return with_series(frame, "request_rate")
