"""One figure of a calibration: cost surfaces, acceptance by depth and by task, and what goes with acceptance."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate.acceptance import binned, pearson
from calibrate.payoff import even_seconds
from calibrate.summary import Calibration
from sim.style import BLUE, GREEN, GREY, ORANGE, PURPLE, STYLE, VERMILLION, drawable, new_figure, nothing, save_picture

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sim.replay.windows import Windows

COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, GREY)
SHOWN_QUERIES = (1, 3, 5, 9, 17)
UNMEASURED_BATCHES = 256
SIGNALS = {"kld": ("KLD of target and draft, nats", BLUE), "draft_entropy": ("draft entropy, nats", ORANGE)}


def plot(found: Calibration, shown: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw `shown`, the figures of `found`, into a file of the kind that the extension names. Needs no display.

    Equal calibrations give equal bytes. Raises InputError for another extension and where the file cannot be written.
    """
    save_picture(lambda: figure(found, shown), path)


def figure(found: Calibration, shown: Mapping[str, Any]) -> Figure:
    """The six panels; one whose part is missing says so. The figure does not enter pyplot's list."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        drawn = new_figure(13, 7.5)
        panels = drawn.subplots(2, 3)
        for axes, model in zip(panels[0, :2], ("target", "draft"), strict=True):
            _draw_cost(axes, found, model, shown)
        _draw_speed_up(panels[0, 2], shown["costs"])
        _draw_depth(panels[1, 0], shown["acceptance"])
        _draw_tasks(panels[1, 1], shown["acceptance"])
        _draw_signals(panels[1, 2], found.windows)
        drawn.suptitle(drawable(_title(shown)), x=0.01, ha="left", fontsize=12, fontweight="bold")
        drawn.supxlabel(drawable(_footer(shown)), x=0.01, ha="left", fontsize=7, color=GREY)
    return drawn


def _draw_cost(axes: Axes, found: Calibration, model: str, shown: Mapping[str, Any]) -> None:
    """Fitted lines over the number of sequences, one for each q, and the measured points with p10 to p90."""
    from matplotlib.ticker import LogLocator

    if found.profile is None:
        return nothing(axes, f"Cost of the {model}", "no profile")
    cost, context = getattr(found.profile, model), shown["costs"]["context_tokens"]
    measured = _measured_at(found.points, model, context)
    queries = [q for q in SHOWN_QUERIES if measured is None or q in set(measured["query_tokens"])] or [1]
    largest = min(cost.measured.num_seqs, UNMEASURED_BATCHES) if measured is None else measured["num_seqs"].max()
    seqs = np.geomspace(1, largest, 100)
    for q, colour in zip(queries, COLOURS, strict=False):
        axes.plot(seqs, 1e3 * even_seconds(cost, seqs, q, context), color=colour, label=f"q = {q}")
        if measured is not None:
            own = measured[measured["query_tokens"] == q]
            centre, low, high = (1e3 * own[name].to_numpy() for name in ("seconds", "p10", "p90"))
            bars = np.clip([centre - low, high - centre], 0, None)
            axes.errorbar(own["num_seqs"], centre, bars, fmt="o", markersize=3, color=colour, elinewidth=0.8)
    axes.set(title=f"Cost of the {model} at {context} cached tokens", xlabel="sequences", ylabel="ms per pass")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))  # a range of less than a decade has labels too
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.set_minor_formatter("")
    axes.legend(loc="upper left", ncols=2)
    return None


def _measured_at(points: pd.DataFrame | None, model: str, context: int) -> pd.DataFrame | None:
    """Decode and verify points of a model at one context; None if there are none."""
    if points is None:
        return None
    chosen = points["phase"].isin(["decode", "verify"]) & (points["context_tokens"] == context)
    own = points[chosen & (points["model"] == model)]
    return own if len(own) else None


def _draw_speed_up(axes: Axes, costs: Mapping[str, Any] | None) -> None:
    """Over k for several batches: against plain decoding, with the recorded acceptance."""
    title = "Speed-up against plain decoding"
    if costs is None or costs["speculation"][0]["speed_up"] is None:
        return nothing(axes, title, "needs costs and acceptance")
    rows = costs["speculation"]
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), len(COLOURS) - 1)).round().astype(int))
    for index, colour in zip(chosen, COLOURS, strict=False):
        ks = [int(k) for k in rows[index]["speed_up"]]
        gain = list(rows[index]["speed_up"].values())
        axes.plot(ks, gain, ".-", color=colour, label=f"B = {rows[index]['num_seqs']}")
    axes.axhline(1, color=GREY, linestyle=":")
    axes.set(title=title, xlabel="k, draft tokens of every sequence", ylabel="times as fast")
    axes.set_ylim(bottom=0)
    axes.legend(loc="best", ncols=2)
    return None


def _draw_depth(axes: Axes, acceptance: Mapping[str, Any] | None) -> None:
    title = "Acceptance by depth"
    if acceptance is None:
        return nothing(axes, title, "no acceptance")
    depths = np.arange(1, acceptance["depth"] + 1)
    reached = [np.nan if value is None else value for value in acceptance["accepted_if_reached"]]
    axes.plot(depths, reached, "o-", color=BLUE, markersize=3, label="if reached")
    axes.plot(depths, acceptance["accepted_at_depth"], "o-", color=ORANGE, markersize=3, label="accepted at depth")
    axes.set(title=title, xlabel="draft position", ylabel="share of draft tokens", ylim=(0, 1.15))
    axes.legend(loc="upper right", ncols=2)
    return None


def _draw_tasks(axes: Axes, acceptance: Mapping[str, Any] | None) -> None:
    """First proposals, with two standard errors."""
    title = "Acceptance by task"
    if acceptance is None:
        return nothing(axes, title, "no acceptance")
    tasks = sorted(acceptance["tasks"].items(), key=lambda entry: -entry[1]["mean_acceptance"])
    mean = [row["mean_acceptance"] for _, row in tasks]
    error = [2 * (row["standard_error"] or 0.0) for _, row in tasks]
    axes.barh(np.arange(len(tasks)), mean, 0.65, xerr=error, color=GREEN, ecolor=GREY)
    axes.set_yticks(np.arange(len(tasks)), [drawable(name or "(none)") for name, _ in tasks])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(title=title, xlabel="share of first proposals, +- 2 standard errors", xlim=(0, 1.05))
    return None


def _draw_signals(axes: Axes, windows: Windows | None) -> None:
    """Mean acceptance in classes of equal size by each signal."""
    title = "Signal against acceptance"
    recorded = [name for name in SIGNALS if windows is not None and name in windows.on]
    if windows is None or not recorded:
        return nothing(axes, title, "no signals")
    accept = windows.accept[:, 0].astype(np.float64)
    for name in recorded:
        label, colour = SIGNALS[name]
        correlation = pearson(windows.on[name][:, 0].astype(np.float64), accept)
        said = "constant" if correlation is None else f"r = {correlation:+.2f}"
        axes.plot(*binned(windows, name), "o-", color=colour, markersize=3, label=f"{label} ({said})")
    axes.set(title=title, xlabel="nats, mean of the class", ylabel="acceptance", ylim=(0, 1.2))
    axes.legend(loc="upper right")
    return None


def _title(shown: Mapping[str, Any]) -> str:
    profile = shown["profile"]
    if profile is None:
        return "Calibration"
    return f"{profile['target_model']['name']} with {profile['draft_model']['name']} on {profile['device']}"


def _footer(shown: Mapping[str, Any]) -> str:
    parts = list(shown["missing"])
    if profile := shown["profile"]:
        parts += [f"{profile['name']} ({profile['digest'][:8]})", profile["engine"], *filter(None, [profile["date"]])]
        parts += [f"{name}: {source}" for name, source in profile["provenance"].items()]
        parts.append(" ".join(f"{name} {version}" for name, version in profile["versions"].items()))
    if acceptance := shown["acceptance"]:
        parts.append(f"acceptance {acceptance['kind']}, {acceptance['windows']:,} windows")
    return "\n".join(textwrap.wrap(" | ".join(filter(None, parts)), 230))
