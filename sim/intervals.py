"""Confidence intervals of a mean over seeds, by Student's t."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95


def mean_interval(values: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """Mean of independent values and the bounds of its interval.

    NaN bounds for one value, or where one is infinite; all NaN for no value.
    """
    sample = np.asarray(values, np.float64)
    if len(sample) == 0:
        return math.nan, math.nan, math.nan
    mean = float(sample.mean())
    if len(sample) == 1 or not np.isfinite(sample).all():
        return mean, math.nan, math.nan
    half = t_quantile(len(sample) - 1, confidence) * float(sample.std(ddof=1)) / math.sqrt(len(sample))
    return mean, mean - half, mean + half


def ratio_interval(
    values: ArrayLike, baseline: ArrayLike, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Geometric mean of the pairwise ratios and the bounds of its interval; NaN where a value is not above 0."""
    above, below = np.asarray(values, np.float64), np.asarray(baseline, np.float64)
    if not ((above > 0) & (below > 0)).all():
        return math.nan, math.nan, math.nan
    mean, low, high = mean_interval(np.log(above / below), confidence)
    return math.exp(mean), math.exp(low), math.exp(high)


@cache
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """t with P(|T| < t) = confidence. Bisection on the closed form for whole degrees of freedom."""
    low, high = 0.0, 1.0
    while _within(high, degrees) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < confidence else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """P(|T| < t): Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(degrees))
    square, odd = math.cos(angle) ** 2, degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for step in range(1, (degrees - 1) // 2 if odd else degrees // 2):
        term *= square * (2 * step if odd else 2 * step - 1) / (2 * step + 1 if odd else 2 * step)
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
