"""What the target accepts: by depth and policy, by depth and task, and by what the draft model says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.frame import need, with_series
from analysis.style import heat_cells, legend_below, styles
from calibrate.acceptance import BINS, history, pearson, survival
from sim.replay.windows import Windows
from sim.style import drawable, nothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
BY_DEPTH = "spec_decode_per_position_conditional_acceptance_rates"
REACHED = "spec_decode_per_position_acceptance_rates"
DRAFTS = "spec_decode_num_drafts"
FEWEST = 30
HISTOGRAM = "acceptance_histogram_by_draft_length"
SIGNALS = {"draft_entropy": "draft entropy", "draft_prob": "draft probability", "kld": "KLD of the token itself"}


def acceptance_by_depth(frame: pd.DataFrame, axes: Axes) -> Axes:
    """Chance that a draft token is accepted if all before it were, over all runs of each policy."""
    title = "Acceptance by depth"
    if frame.empty:
        nothing(axes, title, "no runs")
        return axes
    need(frame, "acceptance_by_depth", "policy", BY_DEPTH, REACHED, DRAFTS)
    runs = with_series(frame, "request_rate")
    look, deepest = styles(runs["series"]), 0
    for label, own in runs.groupby("series", sort=False):
        mean = pooled_by_depth(own)
        if len(mean):
            axes.plot(np.arange(1, len(mean) + 1), 100 * mean, label=drawable(str(label)), **look[str(label)])
        deepest = max(deepest, len(mean))
    if not deepest:
        nothing(axes, title, "nothing was drafted")
        return axes
    axes.set_xticks(range(1, deepest + 1, 1 + deepest // 16))
    axes.set(title=title, xlabel="position in the draft", ylabel="percent accepted, if reached", ylim=(0, 105))
    legend_below(axes)
    return axes


def pooled_by_depth(runs: pd.DataFrame) -> Floats:
    """Of the runs of a policy, each weighed by its drafts that had every token before the position accepted.

    Positions that fewer than `FEWEST` drafts got to, over all runs, are left out.
    """
    depth = max((len(rates) for rates in runs[BY_DEPTH] if rates is not None), default=0)
    total, weights = np.zeros(depth), np.zeros(depth)
    for conditional, reached, drafts in zip(runs[BY_DEPTH], runs[REACHED], runs[DRAFTS], strict=True):
        if conditional is not None and len(conditional):
            rates = np.nan_to_num(np.array(conditional, np.float64))
            weight = drafts * np.append(1.0, np.array(reached, np.float64)[:-1])
            total[: len(rates)] += weight * rates
            weights[: len(rates)] += weight
    return np.asarray(total[weights >= FEWEST] / weights[weights >= FEWEST])


def acceptance_by_task(data: pd.DataFrame | Windows, axes: Axes, depth: int = 8) -> Axes:
    """Heat map of tasks by depth, from recorded windows or from the requests of a run (requests.parquet).

    Percent accepted if reached, most accepted task on top. A cell that was never reached is empty.
    """
    title = "Acceptance by task and depth"
    if isinstance(data, pd.DataFrame):
        if data.empty:
            nothing(axes, title, "no requests")
            return axes
        need(data, "acceptance_by_task", "task", HISTOGRAM)
    tables = _of_windows(data) if isinstance(data, Windows) else _of_requests(data)
    percents = {task: 100 * table for task, table in tables.items() if np.isfinite(table).any()}
    if not percents:
        nothing(axes, title, "nothing was drafted")
        return axes
    order = sorted(percents, key=lambda task: -percents[task][0])
    width = min(depth, max(len(table) for table in percents.values()))
    cells = np.full((len(order), width), np.nan)
    for row, task in enumerate(order):
        cells[row, : len(percents[task])] = percents[task][:width]
    image = heat_cells(axes, cells, lambda value: f"{value:.0f}", low=0.0, high=100.0)
    axes.figure.colorbar(image, ax=axes, label="percent accepted, if reached")
    axes.set_yticks(range(len(order)), [drawable(task or "(no task)") for task in order])
    axes.set_xticks(range(width), [str(position + 1) for position in range(width)])
    axes.set(title=title, xlabel="position in the draft")
    return axes


def _of_windows(windows: Windows) -> dict[str, Floats]:
    reach = survival(windows)
    task = np.repeat(np.array(windows.task, object), windows.rows_of)
    sums = {name: reach[task == name].sum(axis=0) for name in dict.fromkeys(windows.task)}
    return {name: _shares(total[1:], total[:-1]) for name, total in sums.items()}


def _of_requests(requests: pd.DataFrame) -> dict[str, Floats]:
    """From {"k": [steps that accepted 0, 1, ..., k]} of each request; position j was reached if j - 1 were accepted."""
    found: dict[str, Floats] = {}
    for task, own in requests.groupby("task", sort=True):
        rows = [(int(k), np.asarray(counts)) for each in own[HISTOGRAM] for k, counts in (each or {}).items()]
        depth = max((k for k, _ in rows), default=0)
        reached, accepted = np.zeros(depth), np.zeros(depth)
        for k, counts in rows:
            at_least = np.cumsum(counts[::-1])[::-1]  # [a]: steps that accepted a or more, a = 0..k
            reached[:k] += at_least[:k]
            accepted[: len(at_least) - 1] += at_least[1:]
        found[str(task)] = _shares(accepted, reached)
    return found


def _shares(part: Floats, whole: Floats) -> Floats:
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def signal_against_acceptance(windows: Windows, axes: Axes) -> Axes:
    """Acceptance of first proposals in twelve equally large classes by each signal, with Pearson's r (as DSDE has it).

    Signals of the token itself, and what DSDE knows before it: mean KLD of 10 positions, WVIR (arXiv 2509.01083).
    """
    title = "Signal against acceptance"
    first = windows.accept[:, 0].astype(np.float64)
    curves = {
        words: (windows.on[name][:, 0].astype(np.float64), first)
        for name, words in SIGNALS.items()
        if name in windows.on
    }
    if "kld" in windows.on:
        rows, mean, wvir = history(windows)
        curves |= {"mean KLD before": (mean, first[rows]), "WVIR before": (wvir, first[rows])}
    curves = {words: pair for words, pair in curves.items() if len(pair[0]) > 1}
    if not curves:
        nothing(axes, title, "no signals")
        return axes
    for (words, (signal, accepted)), look in zip(curves.items(), styles(curves).values(), strict=True):
        r = pearson(signal, accepted)
        axes.plot(*classes(signal, accepted), label=f"{words} ({'constant' if r is None else f'r = {r:+.2f}'})", **look)
    axes.set(title=title, xlabel="percentile of the signal, from low to high", ylabel="percent accepted", xlim=(0, 100))
    axes.set_ylim(0, 105)
    legend_below(axes)
    return axes


def classes(signal: Floats, accepted: Floats) -> tuple[Floats, Floats]:
    """Mean percentile and percent accepted of up to `BINS` classes; equal signals share a percentile and a class."""
    _, inverse, count = np.unique(signal, return_inverse=True, return_counts=True)
    percentile = (100 * (np.cumsum(count) - count / 2) / len(signal))[inverse]
    member = np.minimum((percentile * BINS / 100).astype(np.int64), BINS - 1)
    size = np.bincount(member, minlength=BINS)
    x, y = (np.bincount(member, values, BINS)[size > 0] / size[size > 0] for values in (percentile, 100 * accepted))
    return x, y
