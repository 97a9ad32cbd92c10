"""What a sweep found, in sentences computed from its frame: each with its interval, none that noise would explain.

Policies are compared by mean time per output token, on the same requests with the same luck, seed by seed. A
difference whose 95 % interval holds zero is called none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.frame import with_series
from analysis.intervals import Estimate, estimate, ratio
from analysis.load import BOUND, Rates, rates_of
from sim.latency import parse_goodput

METRIC = "mean_tpot_ms"
WHAT = "mean time per output token"
PLAIN = "none"
ATTAINED = 0.9
"""Share of requests within the SLOs at which a rate counts as served."""


@dataclass(frozen=True)
class Comparison:
    """The runs of one setting, by series and rate."""

    runs: pd.DataFrame
    rates: Rates
    cells: dict[tuple[str, str], pd.DataFrame]

    @property
    def series(self) -> list[str]:
        return list(dict.fromkeys(self.runs["series"]))

    @property
    def contenders(self) -> list[str]:
        """Series that a server could run: oracles know the future."""
        known = self.runs[~self.runs["policy"].astype(str).str.startswith("oracle")]
        return list(dict.fromkeys(known["series"]))

    def ratio(self, series: str, baseline: str, rate: str, metric: str = METRIC) -> Estimate | None:
        """None where one of the two was not run."""
        own, other = self.cells.get((series, rate)), self.cells.get((baseline, rate))
        found = None if own is None or other is None else ratio(own, other, metric)
        return found if found and np.isfinite(found.mean) else None

    def mean(self, series: str, rate: str, metric: str = METRIC) -> float:
        own = self.cells.get((series, rate))
        return estimate([] if own is None else own[metric]).mean


def comparison(frame: pd.DataFrame) -> Comparison | None:
    """None where no run ended well."""
    if frame.empty or (runs := with_series(frame, "request_rate")).empty:
        return None
    at = runs["request_rate"].astype(str)
    cells = {(str(s), str(rate)): own for (s, rate), own in runs.groupby(["series", at])}
    return Comparison(runs, rates_of(runs, "report"), cells)


def findings(frame: pd.DataFrame) -> list[str]:
    """Sentences about the runs of one setting."""
    found = comparison(frame)
    if found is None:
        return ["No run ended well: there is nothing to compare."]
    parts = (fastest, break_even, capacity, caps, waste, regret, lossy, care)
    return [sentence for part in parts for sentence in part(found)]


def fastest(c: Comparison) -> Iterator[str]:
    """The best policy at each rate, joined over neighbouring rates."""
    spans: list[tuple[str, list[str]]] = []
    for rate in c.rates.settings:
        means = {series: c.mean(series, rate) for series in c.contenders}
        means = {series: mean for series, mean in means.items() if np.isfinite(mean)}
        if not means:
            continue
        best = min(means, key=lambda series: means[series])
        if spans and spans[-1][0] == best:
            spans[-1][1].append(rate)
        else:
            spans.append((best, [rate]))
    if len(c.contenders) < 2:
        spans = []
    for best, rates in spans:
        gains = [gain for rate in rates if (gain := c.ratio(best, PLAIN, rate))] if best != PLAIN else []
        yield f"{_span(c, rates)}, {best} has the lowest {WHAT}{_gains(gains)}{_level(c, best, rates)}."


def _gains(gains: list[Estimate]) -> str:
    """Against plain decoding, at the ends of a span of rates."""
    if not gains:
        return ""
    if len(gains) == 1:
        return f": {_change(gains[0])} against {PLAIN}"
    return f": {_change(gains[0])} against {PLAIN} at the lowest of these rates, {_change(gains[-1])} at the highest"


def _level(c: Comparison, best: str, rates: list[str]) -> str:
    """Others that noise cannot tell from the best at every one of the rates."""
    same = []
    for other in c.contenders:
        ratios = [c.ratio(other, best, rate) for rate in rates] if other != best else []
        if ratios and all(each and each.certain and not each.above(1) for each in ratios):
            same.append(other)
    return f"; within noise of it: {_list(same)}" if same else ""


def break_even(c: Comparison) -> Iterator[str]:
    """From where on each policy is slower than plain decoding."""
    if PLAIN not in c.series:
        yield f"No policy can be held against plain decoding: {PLAIN} was not run."
        return
    slower: dict[str, list[tuple[str, Estimate]]] = {}
    others = [series for series in c.contenders if series != PLAIN]
    for series in others:
        compared = [(rate, found) for rate in c.rates.settings if (found := c.ratio(series, PLAIN, rate))]
        worse = [(rate, found) for rate, found in compared if found.above(1)]
        if worse:
            slower[series] = worse
            lasting = len(worse) > 1 and worse == compared[-len(worse) :]
            rates = [_rate(c, rate) for rate, _ in worse]
            where = f"from {rates[0]} on" if lasting else f"at {_list(rates)}"
            most = max((found for _, found in worse), key=lambda found: found.mean)
            worst = " at worst" if len(worse) > 1 else ""
            yield f"{series} is slower than {PLAIN} {where}: {_change(most)} {WHAT}{worst}."
    if others and not slower:
        yield f"No policy is slower than {PLAIN} beyond noise at any rate that was run."


def capacity(c: Comparison) -> Iterator[str]:
    """The highest rate up to which every rate is served within the SLOs."""
    if "slo_attainment" not in c.runs or c.runs["slo_attainment"].isna().all():
        return
    limits = parse_goodput(tuple(c.runs["goodput"].iloc[0] or ()))
    reached: dict[str, list[str]] = {}
    for series in c.contenders:
        last = ""
        for rate in c.rates.settings:
            if not c.mean(series, rate, "slo_attainment") >= ATTAINED:
                break
            last = rate
        reached.setdefault(last, []).append(series)
    slo = _list([f"{name.upper()} {limit:g} ms" for name, limit in limits.items()])
    order = [rate for rate in (*c.rates.settings[::-1], "") if rate in reached]
    parts = [f"{_rate(c, rate) if rate else 'no rate'} with {_list(reached[rate])}" for rate in order]
    yield f"At least {100 * ATTAINED:.0f} % of requests stay within {slo} up to {'; '.join(parts)}."


def caps(c: Comparison) -> Iterator[str]:
    """What each cap is worth to a policy that was run with several, where it matters most."""
    for policy, own in c.runs.groupby("policy", sort=False):
        by_cap = own.groupby("cap")["series"].first() if "cap" in own else pd.Series(dtype=object)
        if "none" not in by_cap or len(by_cap) < 2:
            continue
        for cap, series in by_cap.drop("none").items():
            found = [(rate, c.ratio(series, by_cap["none"], rate)) for rate in c.rates.settings]
            known = [(rate, each) for rate, each in found if each and (each.above(1) or each.below(1))]
            if known:
                rate, most = max(known, key=lambda pair: abs(np.log(pair[1].mean)))
                at = f"at {_rate(c, rate)}, where it matters most"
                yield f"The cap {cap} changes the {WHAT} of {policy} by {_change(most)} {at}."
            else:
                yield f"The cap {cap} makes no difference to {policy} beyond noise."


def waste(c: Comparison) -> Iterator[str]:
    """The most and the least of each loss."""
    losses = {
        "wasted_verify_share": "of the tokens that it verifies are rejected",
        "draft_idle_share": "of the slots of its draft wait for the longest",
    }
    for column, words in losses.items():
        if column not in c.runs:
            continue
        known = c.runs[c.runs["series"].isin(c.contenders)].dropna(subset=column)
        found = {str(series): estimate(100 * own[column]) for series, own in known.groupby("series", sort=False)}
        if len(found) > 1:
            most, least = (pick(found, key=lambda series: found[series].mean) for pick in (max, min))
            yield f"{most}: {found[most].mean:.0f} % {words}, the most; {least}: {found[least].mean:.0f} %, the least."


def regret(c: Comparison) -> Iterator[str]:
    """The policy closest to the oracle, over all rates and seeds."""
    if BOUND not in c.series:
        return
    found: dict[str, Estimate] = {}
    for series in c.contenders:
        each = [c.ratio(series, BOUND, rate) for rate in c.rates.settings]
        values = [100 * (one.mean - 1) for one in each if one]
        if values:
            found[series] = Estimate(float(np.mean(values)), min(values), max(values), len(values))
    if found:
        best = min(found, key=lambda series: found[series].mean)
        yield (
            f"{best} comes closest to {BOUND}, which knows what will be accepted: {found[best].mean:.1f} % more {WHAT} "
            f"in the mean over rates, {found[best].low:.1f} to {found[best].high:.1f} % by rate."
        )


def lossy(c: Comparison) -> Iterator[str]:
    if "lossless" in c.runs:
        names = list(dict.fromkeys(c.runs["series"][c.runs["lossless"].eq(False)]))
        if names:
            yield f"LOSSY: {_list(names)} let tokens stand that the target rejects; the text is not the target's."


def care(c: Comparison) -> Iterator[str]:
    """What limits the sentences above."""
    seeds = int(c.runs["seed"].nunique())
    if seeds == 1:
        yield "One seed was run: no interval can be given, and small differences may be chance."
    if "forward_passes_outside_measured" in c.runs:
        share = 100 * c.runs["forward_passes_outside_measured"].sum() / max(c.runs["forward_passes"].sum(), 1)
        if share >= 1:
            yield f"{share:.0f} % of forward passes lie beyond the measured range of the cost profile: extrapolated."


def _change(found: Estimate) -> str:
    """A ratio as a change in percent, with its interval."""
    mean, low, high = (100 * (value - 1) for value in (found.mean, found.low, found.high))
    return f"{mean:+.1f} %" + (f" [{low:+.1f}, {high:+.1f}]" if found.certain else "")


def _rate(c: Comparison, rate: str) -> str:
    name = c.rates.names[c.rates.settings.index(rate)]
    return "all requests at once" if name == "inf" else f"{name} requests/s"


def _span(c: Comparison, rates: list[str]) -> str:
    if len(rates) == 1:
        return f"At {_rate(c, rates[0])}" if _rate(c, rates[0])[0].isdigit() else "With all requests at once"
    first = _rate(c, rates[0]).removesuffix(" requests/s")
    return f"From {first} requests/s to {_rate(c, rates[-1])}"


def _list(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
