"""Figures over load: latency against rate, throughput against latency, regret to the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.frame import need, only_one, with_series
from analysis.intervals import estimate, ratio
from analysis.style import better_high, heat_cells, legend_below, named, plain_ticks, styles
from sim.latency import parse_goodput
from sim.style import GREY, drawable, nothing
from traces.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
BOUND = "oracle:goodput"
WIDE, SPREAD = 8.0, 20.0
"""A rate axis is logarithmic where the largest rate is this many times the smallest; a latency axis where its is."""
MOST_BANDS = 5


@dataclass(frozen=True)
class Rates:
    """The rates of a frame in ascending order: their settings, where each is drawn, and what the axis calls it."""

    settings: list[str]
    at: Floats
    names: list[str]
    log: bool


def rates_of(runs: pd.DataFrame, figure: str) -> Rates:
    """Numbers stand where they are, a rate of the trace at what it offers, and `inf` behind the last."""
    offered = runs["request_rate_rps"] if "request_rate_rps" in runs else pd.Series(np.nan, runs.index)
    means = offered.groupby(runs["request_rate"].astype(str)).mean()
    values = {str(setting): _number(str(setting), float(mean)) for setting, mean in means.items()}
    unknown = [setting for setting, value in values.items() if np.isnan(value)]
    if unknown:
        raise InputError(
            f"{figure}: request_rate {unknown[0]!r} is no number and the frame has no request_rate_rps for it"
        )
    order = sorted(values, key=lambda setting: values[setting])
    at = np.array([values[setting] for setting in order])
    finite = at[np.isfinite(at)]
    log = len(finite) > 1 and finite[0] > 0 and finite[-1] >= WIDE * finite[0]
    beyond = (2 * finite[-1] if log else finite[-1] + (finite[-1] - finite[0] or 1.0) / 4) if len(finite) else 1.0
    names = [f"{value:.4g}" if np.isfinite(value) else "inf" for value in at]
    return Rates(order, np.where(np.isfinite(at), at, beyond), names, log)


def _number(setting: str, offered: float) -> float:
    try:
        return float(setting)
    except ValueError:
        return offered


def _rate_axis(axes: Axes, rates: Rates) -> None:
    axes.set_xscale("log" if rates.log else "linear")
    axes.set_xticks(rates.at, rates.names)
    axes.xaxis.set_minor_formatter("")
    axes.set_xticks([], minor=True)
    axes.set_xlabel(named("request_rate"))


def _latency_axis(axes: Axes, values: Floats, limit: float | None = None) -> None:
    """From 0 to above all values, not to the end of a wide interval; logarithmic where they span a wide range."""
    values = np.append(values[values > 0], limit or [])
    if len(values) and values.max() > SPREAD * values.min():
        axes.set_yscale("log")
        axes.set_ylim(values.min() / 1.3, 1.3 * values.max())
        plain_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, 1.08 * values.max(initial=0.0) or 1.0)


def latency(frame: pd.DataFrame, axes: Axes, metric: str = "mean_tpot_ms", slo_ms: float | None = None) -> Axes:
    """A metric against the request rate, a line per policy; of up to five also the 95 % interval over seeds.

    slo_ms  limit to draw; default: the one that the runs were given for this latency (--goodput)
    """
    title = "Latency against load" if metric.endswith("_ms") else "Load"
    runs = _runs(frame, "latency", metric)
    if runs is None:
        nothing(axes, title, "no runs")
        return axes
    rates = rates_of(runs, "latency")
    look = styles(runs["series"])
    for label, own in runs.groupby("series", sort=False):
        by_rate = dict(list(own.groupby(own["request_rate"].astype(str))[metric]))
        found = [estimate(by_rate.get(setting, [])) for setting in rates.settings]
        there = np.array([each.n > 0 for each in found])
        mean, low, high = (np.array([getattr(each, name) for each in found]) for name in ("mean", "low", "high"))
        axes.plot(rates.at[there], mean[there], label=drawable(str(label)), **look[str(label)])
        if len(look) <= MOST_BANDS:
            axes.fill_between(rates.at, low, high, color=look[str(label)]["color"], alpha=0.15, linewidth=0)
    _rate_axis(axes, rates)
    limit_ms = _limit(runs, metric) if slo_ms is None else slo_ms
    if limit_ms is not None:
        axes.axhline(limit_ms, color=GREY, linestyle=(0, (6, 3)), linewidth=1, label=f"SLO, {limit_ms:g} ms")
    _latency_axis(axes, runs[metric].to_numpy(np.float64), limit_ms)
    axes.set(title=title, ylabel=named(metric))
    legend_below(axes)
    return axes


def _limit(runs: pd.DataFrame, metric: str) -> float | None:
    """The SLO of the latency that `metric` is a figure of, where all runs have the same."""
    if "goodput" not in runs:
        return None
    limits = {parse_goodput(tuple(words or ())).get(metric.split("_")[1]) for words in runs["goodput"]}
    return limits.pop() if len(limits) == 1 else None


def pareto(frame: pd.DataFrame, axes: Axes, x: str = "output_throughput", y: str = "mean_tpot_ms") -> Axes:
    """Throughput against latency, a line per policy through its rates; the thick grey line joins what nothing beats."""
    title = "Throughput and latency"
    runs = _runs(frame, "pareto", x, y)
    if runs is None:
        nothing(axes, title, "no runs")
        return axes
    rates = rates_of(runs, "pareto")
    look = styles(runs["series"])
    points: list[tuple[float, float]] = []
    for label, own in runs.groupby("series", sort=False):
        means = own.groupby(own["request_rate"].astype(str))[[x, y]].mean()
        means = means.reindex([setting for setting in rates.settings if setting in means.index]).dropna()
        axes.plot(means[x], means[y], label=drawable(str(label)), **look[str(label)])
        points += list(means.itertuples(index=False, name=None))
    front = pareto_front(np.array(points).reshape(-1, 2), better_high(x), better_high(y))
    axes.plot(
        front[:, 0], front[:, 1], color="#bdbdbd", linewidth=6, zorder=1, solid_capstyle="round", label="best there is"
    )
    _latency_axis(axes, np.array([point[1] for point in points]))
    axes.set_xlim(left=0)
    axes.set(title=title, xlabel=named(x), ylabel=named(y))
    legend_below(axes)
    return axes


def pareto_front(points: Floats, x_high: bool, y_high: bool) -> Floats:
    """The points that no other equals or beats in both, in ascending x. points: float64[n, 2]."""
    turned = np.unique(points * [1 if x_high else -1, 1 if y_high else -1], axis=0)[::-1]  # best x first, then best y
    best = np.maximum.accumulate(turned[:, 1]) if len(turned) else turned[:, 1:]
    keep = np.append(True, turned[1:, 1] > best[:-1]) if len(turned) else np.zeros(0, np.bool_)
    front = turned[keep] * [1 if x_high else -1, 1 if y_high else -1]
    return np.asarray(front[np.argsort(front[:, 0])])


def regret(frame: pd.DataFrame, axes: Axes, metric: str = "mean_tpot_ms", bound: str = BOUND) -> Axes:
    """How much worse each policy is than the oracle on the same requests, in percent; least regret on top."""
    title = f"Regret to {bound}"
    runs = _runs(frame, "regret", metric, "seed")
    if runs is None:
        nothing(axes, title, "no runs")
        return axes
    only_one(runs, "regret", "request_rate")
    best = runs[runs["policy"] == bound]
    if best.empty:
        raise InputError(f"regret: no run of {bound} in the frame to compare with; add it to --policy")
    rates = rates_of(runs, "regret")
    table = regrets(runs, rates.settings, metric, bound)
    if table.empty:
        nothing(axes, title, f"only {bound}")
        return axes
    top = min(max(float(np.nanmax(table.to_numpy(), initial=0.0)), 1.0), 100.0)
    image = heat_cells(axes, table.to_numpy(), lambda value: f"{value:.0f}", low=0.0, high=top)
    axes.set_yticks(range(len(table)), [drawable(str(label)) for label in table.index])
    axes.set_xticks(range(len(rates.at)), rates.names)
    more = "max" if np.nanmax(table.to_numpy(), initial=0.0) > top else "neither"
    axes.figure.colorbar(image, ax=axes, label=f"percent more {named(metric).rpartition(',')[0]}", extend=more)
    axes.set(title=title, xlabel=named("request_rate"))
    return axes


def regrets(runs: pd.DataFrame, settings: list[str], metric: str, bound: str = BOUND) -> pd.DataFrame:
    """Percent by series and rate, paired by seed; least mean regret first. runs have a column `series`."""
    at, bounds = runs["request_rate"].astype(str), runs[runs["policy"] == bound]
    of_bound = dict(list(bounds.groupby(at)))
    rows: dict[str, list[float]] = {}
    for label, own in runs[runs["policy"] != bound].groupby("series", sort=False):
        of_own = dict(list(own.groupby(at)))
        both = [setting if setting in of_own and setting in of_bound else None for setting in settings]
        found = [np.nan if s is None else ratio(of_own[s], of_bound[s], metric).mean for s in both]
        rows[str(label)] = [100 * ((1 / value if better_high(metric) else value) - 1) for value in found]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=settings)
    return table.loc[table.mean(axis=1).sort_values(kind="stable").index]


def _runs(frame: pd.DataFrame, figure: str, *columns: str) -> pd.DataFrame | None:
    """Good runs with their series; None if there are none."""
    if frame.empty:
        return None
    need(frame, figure, "policy", "request_rate", *columns)
    runs: Any = with_series(frame, "request_rate")
    return None if runs.empty else runs
