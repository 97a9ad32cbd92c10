"""What a sweep says beyond single runs: means with their intervals over seeds, and paired differences.

Runs of one seed replay the same requests with the same luck, so the difference to a baseline is taken seed by seed:
what the seeds share cancels, and its interval is narrower than those of the two means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.config import SimConfig
from sim.intervals import mean_interval, ratio_interval
from sim.policies import default_cap, default_rule
from traces.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

METRICS = (
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "p99_tpot_ms",
    "mean_e2el_ms",
    "output_throughput",
    "request_goodput",
    "slo_attainment",
)
POLICY = ["policy", "cap", "acceptance_rule"]


def summary(frame: DataFrame, metrics: Sequence[str] = METRICS) -> DataFrame:
    """A row per combination of settings: its number of seeds n, and METRIC, METRIC_low, METRIC_high for each metric.

    Runs that failed and figures that are undefined are left out of the mean; the interval is Student's at 95 %.
    """
    from pandas import DataFrame

    metrics = _known(frame, metrics)
    names, rows = _settings(frame), []
    for where, group in _groups(frame, names):
        row = dict(zip(names, where, strict=True)) | {"n": int(group["error"].isna().sum())}
        for metric in metrics:
            mean, low, high = mean_interval(group[metric].dropna().to_numpy(np.float64))
            row |= {metric: mean, f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row)
    return DataFrame(rows)


def paired(frame: DataFrame, baseline: str, metrics: Sequence[str] = METRICS) -> DataFrame:
    """A row per combination of settings and metric: how it differs from the baseline policy under the same seeds.

    n pairs; `difference` (mean of policy - baseline) and `ratio` (geometric mean of policy / baseline), each with _low
    and _high, 95 %, NaN for a single pair. Raises InputError where the frame has no run of the baseline.
    """
    from pandas import DataFrame

    metrics = _known(frame, metrics)
    own = (frame["policy"] == baseline) & (frame["cap"] == default_cap(baseline))
    own &= frame["acceptance_rule"] == default_rule(baseline)
    if not own.any():
        raise InputError(
            f"no run of the baseline {baseline}; policies of this sweep: {', '.join(frame['policy'].unique())}"
        )
    names = _settings(frame)
    shared = [name for name in names if name not in POLICY]
    bases = {where: group.set_index("seed") for where, group in _groups(frame[own], shared)}
    rows = []
    for where, group in _groups(frame[~own], names):
        base = bases.get(tuple(value for name, value in zip(names, where, strict=True) if name in shared))
        if base is None:
            continue
        both = group.set_index("seed").join(base.add_suffix("_base"), how="inner")
        for metric in metrics:
            pairs = both[[metric, f"{metric}_base"]].dropna().to_numpy(np.float64)
            rows.append(dict(zip(names, where, strict=True)) | {"metric": metric} | _difference(pairs))
    return DataFrame(rows, columns=[*names, "metric", *_difference(np.empty((0, 2)))])


def _difference(pairs: Any) -> dict[str, float]:
    both = {"difference": mean_interval(pairs[:, 0] - pairs[:, 1]), "ratio": ratio_interval(pairs[:, 0], pairs[:, 1])}
    figures: dict[str, float] = {"n": len(pairs)}
    for name, (middle, low, high) in both.items():
        figures |= {name: middle, f"{name}_low": low, f"{name}_high": high}
    return figures


def _settings(frame: DataFrame) -> list[str]:
    """What tells groups of runs apart: the policy, and every other setting but the seed that varies.

    Runs that failed do not count: their settings are those asked for, without what a run fills in.
    """
    good = frame[frame["error"].isna()] if frame["error"].isna().any() else frame
    names = [each.name for each in fields(SimConfig) if each.name in frame and each.name not in {"seed", *POLICY}]
    return POLICY + [name for name in names if good[name].map(str).nunique(dropna=False) > 1]


def _groups(frame: DataFrame, names: list[str]) -> list[tuple[tuple[Any, ...], DataFrame]]:
    """Groups in the order of their first runs; an undefined setting is a value like others."""
    keys = frame[names].map(lambda value: tuple(value) if isinstance(value, list) else value)
    keys = keys.astype(object).where(keys.notna(), None)
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(keys.itertuples(index=False, name=None)):
        places.setdefault(key, []).append(place)
    return [(key, frame.iloc[rows]) for key, rows in places.items()]


def _known(frame: DataFrame, metrics: Sequence[str]) -> list[str]:
    """Of the metrics, those that any run has; all missing is a mistake."""
    known = [metric for metric in metrics if metric in frame]
    if not known and len(frame) and frame["error"].isna().any():
        raise InputError(f"the sweep has none of the metrics {', '.join(metrics)}")
    return known
