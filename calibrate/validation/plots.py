"""Figures of a validation: latencies and single requests, live against simulated, and the time of steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from analysis.page import Picture
from analysis.style import draw, legend_below, plain_ticks, styles
from calibrate.validation.replays import Simulation
from calibrate.validation.validation import Cell, Validation
from sim.style import GREY, drawable, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {"ttft": "Time to first token", "tpot": "Time per output token", "e2el": "End-to-end latency"}


def pictures(found: Validation) -> Iterator[Picture]:
    """As SVG, each with its caption."""
    for name, title in TITLES.items():
        caption = f"{title}, mean of each policy and rate: live repeats (bar: their range) against simulated."
        yield _picture(latency, found.cells, caption, name=name)
    if any(cell.simulations.own for cell in found.cells):
        caption = "End-to-end latency of each request, mean of the live repeats against simulated with its own windows."
        yield _picture(requests, found.cells, caption)
    caption = "Simulated over live time of a decode step, medians by sequences in the batch; above 1 simulated is slow."
    yield _picture(steps, found.cells, caption)


def _picture(figure: object, cells: tuple[Cell, ...], caption: str, **options: str) -> Picture:
    drawn = picture(lambda: draw(figure, cells, **options), "svg")  # type: ignore[arg-type]
    return Picture(drawn.decode("utf-8"), caption)


def latency(cells: tuple[Cell, ...], axes: Axes, name: str) -> Axes:
    """Means in milliseconds, a marker for each policy."""
    looks = styles(cell.live.policy for cell in cells)
    values = []
    for policy, look in looks.items():
        own = [
            each
            for cell in cells
            for each in cell.figures
            if cell.live.policy == policy and each.name == f"mean_{name}_ms"
        ]
        live, simulated = [each.live_mean for each in own], [each.simulated_mean for each in own]
        sides = [[each.live_mean - min(each.live) for each in own], [max(each.live) - each.live_mean for each in own]]
        axes.errorbar(
            live, simulated, xerr=sides, label=drawable(policy), **(look | {"linestyle": "none"}), elinewidth=1
        )
        values += live + simulated
    return _square(axes, values, f"{TITLES[name]}, ms")


def requests(cells: tuple[Cell, ...], axes: Axes) -> Axes:
    """Seconds, a point for each request."""
    values: list[float] = []
    looks = styles(cell.live.policy for cell in cells)
    for policy, look in looks.items():
        x, y = [], []
        for cell in cells:
            if cell.live.policy == policy and cell.simulations.own:
                x += np.mean([each.requests["e2el_s"].to_numpy() for each in cell.live.repeats], 0).tolist()
                y += cell.simulations.own.requests["e2el"].tolist()
        axes.plot(x, y, label=drawable(policy), **(look | {"linestyle": "none", "markersize": 2.5}), alpha=0.6)
        values += x + y
    return _square(axes, values, "End-to-end latency of requests, s")


def _square(axes: Axes, values: list[float], title: str) -> Axes:
    known = [value for value in values if np.isfinite(value) and value > 0]
    if known:
        ends = [0.9 * min(known), 1.1 * max(known)]
        axes.plot(ends, ends, color=GREY, linewidth=0.8)
        axes.set(xlim=ends, ylim=ends, xscale="log", yscale="log")
    axes.set(title=title, xlabel="live", ylabel="simulated")
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    legend_below(axes)
    return axes


def steps(cells: tuple[Cell, ...], axes: Axes) -> Axes:
    """Ratio of medians by batch."""
    for policy, look in styles(cell.live.policy for cell in cells).items():
        live, simulated = by_batch([cell for cell in cells if cell.live.policy == policy])
        sizes = sorted(live.keys() & simulated.keys())
        ratios = [np.median(simulated[size]) / np.median(live[size]) for size in sizes]
        axes.plot(sizes, ratios, label=drawable(policy), **look)
    axes.axhline(1, color=GREY, linewidth=0.8)
    axes.set(title="Time of a decode step", xlabel="sequences in the batch", ylabel="simulated / live")
    legend_below(axes)
    return axes


def by_batch(cells: list[Cell]) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Seconds of the steps that read no prompt, live and simulated, by sequences that decoded."""
    live: dict[int, list[float]] = {}
    simulated: dict[int, list[float]] = {}
    for cell in cells:
        for run in cell.live.repeats:
            if run.steps is not None:
                _collect(live, {name: run.steps[name].to_numpy() for name in COLUMNS})
        for each in _simulations(cell):
            _collect(simulated, each.log.step_columns())
    return live, simulated


COLUMNS = ("start_s", "end_s", "num_decode", "num_prefill")


def _simulations(cell: Cell) -> tuple[Simulation, ...]:
    """With the requests' own windows where there are any: then the drafts are those of the live run."""
    own = cell.simulations.own
    return (own,) if own else cell.simulations.held_out


def _collect(into: dict[int, list[float]], columns: dict[str, np.ndarray]) -> None:
    decode = (columns["num_prefill"] == 0) & (columns["num_decode"] > 0)
    seconds = (columns["end_s"] - columns["start_s"])[decode]
    for size, value in zip(columns["num_decode"][decode].astype(int).tolist(), seconds.tolist(), strict=True):
        into.setdefault(size, []).append(value)
