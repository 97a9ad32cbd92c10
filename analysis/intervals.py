"""Means over seeds and ratios of paired runs, with their 95 % intervals (sim/intervals.py)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from sim.intervals import mean_interval, ratio_interval


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` values with its interval, whose ends are NaN where one value gives none."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def certain(self) -> bool:
        """Whether there is an interval."""
        return self.n > 1

    def above(self, limit: float) -> bool:
        """Beyond noise; for a single value simply above."""
        return (self.low if self.certain else self.mean) > limit

    def below(self, limit: float) -> bool:
        return (self.high if self.certain else self.mean) < limit


def estimate(sample: object) -> Estimate:
    """Of the finite values of a sample."""
    values = np.asarray(sample, np.float64)
    values = values[np.isfinite(values)]
    return Estimate(*mean_interval(values), len(values))


def ratio(runs: pd.DataFrame, baseline: pd.DataFrame, metric: str) -> Estimate:
    """How many times the baseline's metric a policy's is: geometric mean over the seeds that both have.

    Runs of one seed share requests and luck, so the interval is that of the paired log ratio.
    """
    a, b = (each.groupby("seed")[metric].mean() for each in (runs, baseline))
    both = a.index.intersection(b.index)
    top, bottom = a[both].to_numpy(np.float64), b[both].to_numpy(np.float64)
    valid = (top > 0) & (bottom > 0)
    return Estimate(*ratio_interval(top[valid].tolist(), bottom[valid].tolist()), int(valid.sum()))
