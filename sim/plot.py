"""One figure per run: load, speculation, time and latency. Drawn without a display and without pyplot (F66)."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.latency import timings_of
from sim.style import BLUE, GREEN, GREY, ORANGE, STYLE, TIME_PARTS, VERMILLION, drawable, new_figure, save_picture
from sim.style import check_path as check_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.results import Results

Floats = NDArray[np.float64]
Columns = dict[str, Floats]

BINS = 160
MOST_POINTS = 1000
"""Of a cumulative distribution: more are not seen and only make the file large."""

LEGEND_ROOM = 1.2
"""The axes reach this much higher than the data, so that the legend hides none of it."""


def plot(run: Results, path: str | os.PathLike[str]) -> None:
    """Draw `run` into a file of the kind that the extension names. Equal runs give equal bytes.

    Raises InputError for another extension and where the file cannot be written.
    """
    save_picture(lambda: figure(run), path)


def figure(run: Results) -> Figure:
    """The four panels. The figure has a canvas of its own and does not enter pyplot's list."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        drawn = new_figure(10, 7)
        panels = drawn.subplots(2, 2)
        steps = run.log.step_columns()
        edges = np.linspace(0.0, float(steps["end_s"].max(initial=0.0)) or 1.0, BINS + 1)
        _draw_load(panels[0, 0], steps, edges)
        _draw_speculation(panels[0, 1], steps, edges)
        _draw_time(panels[1, 0], steps)
        _draw_latency(panels[1, 1], run)
        drawn.suptitle(drawable(_title(run)), x=0.01, ha="left", fontsize=12, fontweight="bold")
        drawn.supxlabel(drawable(_footer(run)), x=0.01, ha="left", fontsize=7, color=GREY)
    return drawn


def _draw_load(axes: Axes, steps: Columns, edges: Floats) -> None:
    middle = (edges[1:] + edges[:-1]) / 2
    decoding, queued = (_mean_over_time(steps, name, edges) for name in ("num_decode", "waiting"))
    axes.fill_between(middle, decoding, color=BLUE, alpha=0.15, linewidth=0)
    axes.plot(middle, decoding, color=BLUE, label="decoding (batch)")
    axes.plot(middle, queued, color=VERMILLION, label="waiting (queue)")
    axes.set(title="Load", xlabel="time, s", ylabel="requests", xlim=(0, edges[-1]))
    axes.set_ylim(0, LEGEND_ROOM * max(1.0, decoding.max(), queued.max()))
    axes.legend(loc="upper right", ncols=2)


def _draw_speculation(axes: Axes, steps: Columns, edges: Floats) -> None:
    middle = (edges[1:] + edges[:-1]) / 2
    decoding = steps["num_decode"] > 0
    longest = binned_ratio(steps, edges, steps["max_draft"] * decoding, decoding)
    mean = binned_ratio(steps, edges, steps["drafted"], steps["num_decode"])
    accepted = binned_ratio(steps, edges, steps["accepted"], steps["num_decode"])
    axes.fill_between(middle, mean, longest, color=ORANGE, alpha=0.15, linewidth=0)
    for values, colour, label in (
        (longest, ORANGE, "longest k of the batch"),
        (mean, BLUE, "mean k"),
        (accepted, GREEN, "accepted"),
    ):
        # a point between two gaps has no line: show it where there are few
        few = np.isfinite(values).sum() < BINS // 2
        axes.plot(middle, values, color=colour, label=label, marker="." if few else "")
    axes.set(title="Speculation", xlabel="time, s", ylabel="draft tokens per sequence and step", xlim=(0, edges[-1]))
    axes.set_ylim(0, LEGEND_ROOM * max(1.0, np.max(longest, initial=0.0, where=np.isfinite(longest))))
    axes.legend(loc="upper right", ncols=3)


def _draw_time(axes: Axes, steps: Columns) -> None:
    """Mean length of a step and of its parts, by what the step held."""
    decodes, prefills = steps["num_decode"] > 0, steps["num_prefill"] > 0
    classes = {"decode": decodes & ~prefills, "decode\nand prefill": decodes & prefills, "prefill": prefills & ~decodes}
    total_s = sum(float(steps[f"{part}_s"].sum()) for part in TIME_PARTS)
    labels, widest_ms = [], 0.0
    for row, (name, members) in enumerate(classes.items()):
        left_ms = 0.0
        for part, colour in TIME_PARTS.items():
            length_ms = 1000 * float(steps[f"{part}_s"][members].mean()) if members.any() else 0.0
            axes.barh(row, length_ms, 0.6, left_ms, color=colour, label=part if row == 0 else None)
            left_ms += length_ms
        widest_ms = max(widest_ms, left_ms)
        own_s = sum(float(steps[f"{part}_s"][members].sum()) for part in TIME_PARTS)
        share = f"{100 * own_s / total_s:.0f}% of busy time" if total_s else "no step"
        axes.annotate(
            share, (left_ms, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=GREY
        )
        labels.append(f"{name}\n({members.sum():,} steps)")
    axes.set_yticks(range(len(classes)), labels)
    axes.set_ylim(len(classes) - 0.5, -0.9)
    axes.set(title="Time of a step, mean", xlabel="ms")
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, 1.35 * widest_ms or 1.0)
    axes.legend(loc="upper right", ncols=4)


def _draw_latency(axes: Axes, run: Results) -> None:
    timings = timings_of(run.log, run.workload)
    for name, values_s, colour in (("TPOT", timings.tpot_s, BLUE), ("TTFT", timings.ttft_s, VERMILLION)):
        sample_ms = np.sort(1000 * values_s[timings.success & np.isfinite(values_s)])
        sample_ms = sample_ms[sample_ms > 0]
        if len(sample_ms):
            share = np.linspace(0.0, 1.0, min(len(sample_ms), MOST_POINTS) + 1)[1:]
            quantiles_ms = sample_ms[np.ceil(share * len(sample_ms)).astype(int) - 1]
            style: dict[str, Any] = {"marker": "."} if len(quantiles_ms) == 1 else {}
            axes.step(
                np.append(quantiles_ms[0], quantiles_ms), np.append(0.0, share), where="post", color=colour, **style
            )
        axes.plot([], [], color=colour, label=f"{name} (n = {len(sample_ms):,})")
        if limit_ms := run.slo.get(name.lower()):
            label = f"{name} SLO, {limit_ms:g} ms"
            axes.axvline(limit_ms, ymax=1 / LEGEND_ROOM, color=colour, linestyle=":", label=label)
    axes.set(title="Latency of completed requests", xlabel="ms", ylabel="share of requests", xscale="log")
    axes.set_ylim(0, LEGEND_ROOM)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.xaxis.set_major_formatter(_plain_number)
    axes.xaxis.set_minor_formatter("")
    axes.legend(loc="upper right", ncols=2)


def _mean_over_time(steps: Columns, name: str, edges: Floats) -> Floats:
    """[bins] time-weighted mean of a step's value, summed over replicas; 0 where no step runs."""
    mean = np.zeros(len(edges) - 1)
    for replica in np.unique(steps["replica"]):
        own = steps["replica"] == replica
        start_s, end_s, value = steps["start_s"][own], steps["end_s"][own], steps[name][own]
        # the integral up to each edge is linear inside a step and flat between steps
        integral = np.repeat(np.append(0.0, np.cumsum(value * (end_s - start_s))), 2)[1:-1]
        knots = np.column_stack([start_s, end_s]).ravel()
        mean += np.diff(np.interp(edges, knots, integral)) / np.diff(edges)
    return mean


def binned_ratio(steps: Columns, edges: Floats, part: Floats, whole: Floats | NDArray[np.bool_]) -> Floats:
    """[bins] sum of part over sum of whole, of the steps that end in the bin; NaN, and so a gap, where none does."""
    above = np.histogram(steps["end_s"], edges, weights=part)[0]
    below = np.histogram(steps["end_s"], edges, weights=whole.astype(np.float64))[0]
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), np.nan)


def _plain_number(value: float, _position: float) -> str:
    return f"{value:,g}"


def _title(run: Results) -> str:
    cap = run.config.get("cap")
    return f"{run.config.get('policy', '?')}{f', cap {cap}' if cap and cap != 'none' else ''} on {run.provenance.trace}"


def _footer(run: Results) -> str:
    about = run.provenance
    parts = [f"trace: {about.trace_origin}", f"profile: {about.profile} ({about.profile_digest[:8]})"]
    parts += [f"acceptance: {about.acceptance}", f"seed {about.seed}"]
    kinds = ("measured", "modelled", "sampled", "synthetic")
    parts += [f"{kind}: {', '.join(getattr(about, kind))}" for kind in kinds if getattr(about, kind)]
    versions = " ".join(f"{name} {version}" for name, version in about.versions.items())
    return "\n".join(textwrap.wrap(" | ".join([*parts, versions]), 175))
