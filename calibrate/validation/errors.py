"""Arithmetic of simulated against live figures: errors, what repeats of the live run differ by, and rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.96


@dataclass(frozen=True)
class Figure:
    """One metric of one policy at one load.

    live, simulated  a value of each run
    limit_percent    error that is allowed in any case; None: only shown
    """

    name: str
    live: tuple[float, ...]
    simulated: tuple[float, ...]
    limit_percent: float | None = None

    @property
    def live_mean(self) -> float:
        return float(np.mean(self.live))

    @property
    def simulated_mean(self) -> float:
        return float(np.mean(self.simulated))

    @property
    def error_percent(self) -> float:
        """Of the simulated mean against the live mean."""
        return 100 * (self.simulated_mean / self.live_mean - 1) if self.live_mean else math.nan

    @property
    def spread_percent(self) -> float:
        """How far the farthest live repeat is from their mean; NaN for a single one."""
        if len(self.live) < 2 or not self.live_mean:
            return math.nan
        return float(100 * np.abs(np.array(self.live) / self.live_mean - 1).max())

    @property
    def holds(self) -> bool | None:
        """Whether the error is within the limit or the spread, whichever is larger; None without a limit."""
        if self.limit_percent is None:
            return None
        spread = self.spread_percent
        return abs(self.error_percent) <= max(self.limit_percent, 0.0 if math.isnan(spread) else spread)


@dataclass(frozen=True)
class PerRequest:
    """Single requests, simulated against live. Percent of the live value; NaN where nothing is left to compare.

    mape, bias   mean of the absolute and of the signed errors
    correlation  Pearson's, over requests
    noise        mean absolute error of a live repeat against the mean of the other repeats
    worst        requests of the largest absolute errors, the worst first
    """

    requests: int
    mape: float
    bias: float
    correlation: float
    noise: float
    worst: tuple[int, ...]


def per_request(live: ArrayLike, simulated: ArrayLike, worst: int = 5) -> PerRequest:
    """live [repeats, n], simulated [n]; requests with a value that is not finite, or 0 live, are left out."""
    repeats, found = np.atleast_2d(np.asarray(live, np.float64)), np.asarray(simulated, np.float64)
    mean = repeats.mean(0)
    known = np.flatnonzero(np.isfinite(mean) & np.isfinite(found) & (mean > 0))
    if not len(known):
        return PerRequest(0, math.nan, math.nan, math.nan, math.nan, ())
    errors = 100 * (found[known] / mean[known] - 1)
    order = np.argsort(-np.abs(errors), kind="stable")[:worst]
    return PerRequest(
        requests=len(known),
        mape=float(np.abs(errors).mean()),
        bias=float(errors.mean()),
        correlation=_correlation(mean[known], found[known]),
        noise=_noise(repeats[:, known]),
        worst=tuple(known[order].tolist()),
    )


def _correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return math.nan
    return float(np.corrcoef(a, b)[0, 1])


def _noise(repeats: NDArray[np.float64]) -> float:
    count = len(repeats)
    if count < 2:
        return math.nan
    others = (repeats.sum(0) - repeats) / (count - 1)
    return float(100 * np.abs(repeats / others - 1).mean())


@dataclass(frozen=True)
class Length:
    """An acceptance length with its standard error."""

    mean: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        return self.mean - Z95 * self.error, self.mean + Z95 * self.error

    def agrees(self, other: Length) -> bool:
        """Whether the 95 % interval of the difference holds 0; two lengths without an error must be equal."""
        return abs(self.mean - other.mean) <= Z95 * math.hypot(self.error, other.error) + 1e-12


def acceptance_length(drafts: ArrayLike, accepted: ArrayLike, cluster: ArrayLike | None = None) -> Length:
    """1 + accepted / drafts of requests, as a ratio of sums with the error of one (delta method).

    drafts, accepted  [n], steps that verified a draft, and tokens accepted in them
    cluster           [n], requests of one number are not independent: they replay one recorded text
    """
    d, a = np.asarray(drafts, np.float64), np.asarray(accepted, np.float64)
    if cluster is not None:
        _, index = np.unique(np.asarray(cluster), return_inverse=True)
        d, a = (np.bincount(index, each).astype(np.float64) for each in (d, a))
    if d.sum() == 0:
        return Length(math.nan, math.nan)
    rate, n = a.sum() / d.sum(), len(d)
    error = math.sqrt(n / (n - 1) * ((a - rate * d) ** 2).sum()) / d.sum() if n > 1 else math.nan
    return Length(float(1 + rate), float(error))


@dataclass(frozen=True)
class Ranking:
    """Pairs of policies whose order is the same, of those that the live repeats tell apart."""

    same: int
    decided: int
    swapped: tuple[tuple[str, str], ...]


def ranking(live: Mapping[str, Sequence[float]], simulated: Mapping[str, float]) -> Ranking:
    """Order of policies by one metric. Live repeats tell two apart if the ranges of their values do not overlap."""
    same, decided, swapped = 0, 0, []
    for a, b in combinations(live, 2):
        if max(live[a]) >= min(live[b]) and max(live[b]) >= min(live[a]):
            continue
        decided += 1
        if (np.mean(live[a]) < np.mean(live[b])) == (simulated[a] < simulated[b]):
            same += 1
        else:
            swapped.append((a, b))
    return Ranking(same, decided, tuple(swapped))
