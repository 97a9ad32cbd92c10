"""Some steps of a run, or of several by name, one after the other on the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.frame import need, runs_of, steps_of
from analysis.style import legend_below
from sim.style import TIME_PARTS, drawable, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORDER = ("prefill", "draft", "verify", "host")
"""In which a step is drawn; prefill and verification are one pass of the target (see sim/timeline.py)."""
HEIGHTS = {"prefill": 0.6, "draft": 0.4, "verify": 0.8, "host": 0.2}
"""Parts differ in height, so that they are told apart in grey."""


def timeline_of_steps(data: Any, axes: Axes, start_s: float | None = None, steps: int = 24, replica: int = 0) -> Axes:
    """The parts of consecutive steps of a replica; above a draft its depth, where there is room for it.

    data     a run (Results, SavedResults with steps, or its frame of steps), or several by name
    start_s  default: so that the steps of the first run are its middle ones. Runs share one clock
    """
    title = "Timeline of steps"
    frames = {label: steps_of(run, "timeline_of_steps") for label, run in runs_of(data).items()}
    for frame in frames.values():
        if len(frame):
            need(
                frame, "timeline_of_steps", "replica", "start_s", "end_s", "max_draft", *(f"{p}_s" for p in TIME_PARTS)
            )
    frames = {label: frame[frame["replica"] == replica] for label, frame in frames.items() if len(frame)}
    frames = {label: frame for label, frame in frames.items() if len(frame)}
    if not frames:
        nothing(axes, title, "no steps")
        return axes
    first = next(iter(frames.values()))
    begin = (len(first) - steps) // 2 if start_s is None else int(np.searchsorted(first["start_s"], start_s))
    begin = int(np.clip(begin, 0, len(first) - 1))
    shown = first.iloc[begin : begin + steps]
    from_s, until_s = float(shown["start_s"].iloc[0]), float(shown["end_s"].iloc[-1])
    for row, frame in enumerate(frames.values()):
        own = frame[(frame["end_s"] > from_s) & (frame["start_s"] < until_s)]
        _draw_row(axes, len(frames) - 1 - row, own, from_s, until_s)
    axes.set_yticks(np.arange(len(frames))[::-1] + 0.4, [drawable(label) for label in frames])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(0, len(frames) + 0.05)
    axes.set_xlim(0, 1e3 * (until_s - from_s))
    axes.set(title=title, xlabel=f"ms after {from_s:,.3f} s; numbers: depth of the draft")
    legend_below(axes)
    return axes


def _draw_row(axes: Axes, row: int, own: pd.DataFrame, from_s: float, until_s: float) -> None:
    at_ms = 1e3 * (own["start_s"].to_numpy() - from_s)
    for part in ORDER:
        width_ms = 1e3 * own[f"{part}_s"].to_numpy()
        spans = [(at, width) for at, width in zip(at_ms, width_ms, strict=True) if width > 0]
        label = part if row == 0 else None
        axes.broken_barh(
            spans, (row, HEIGHTS[part]), facecolors=TIME_PARTS[part], edgecolor="white", linewidth=0.3, label=label
        )
        if part == "draft":
            _write_depths(axes, row, at_ms, width_ms, own["max_draft"].to_numpy(), 1e3 * (until_s - from_s))
        at_ms = at_ms + width_ms


def _write_depths(axes: Axes, row: int, at_ms: Any, width_ms: Any, depth: Any, whole_ms: float) -> None:
    for at, width, k in zip(at_ms, width_ms, depth, strict=True):
        if width > 0.01 * whole_ms and 0 <= at + width / 2 <= whole_ms:
            axes.text(at + width / 2, row + HEIGHTS["draft"] + 0.02, f"{k:g}", ha="center", va="bottom", fontsize=7)
