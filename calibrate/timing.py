"""How long one call takes on a device: warmed up, synchronised, repeated until the median is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Thunk = Callable[[], Any]
Stopwatch = Callable[[Thunk], float]
"""Runs the thunk once and returns the seconds until the device has finished it."""

MEDIAN_TO_MEAN_ERROR = 1.2533  # sqrt(pi / 2): standard error of a median over that of a mean, normal noise
TRIMMED_SHARE = 0.1  # of each tail, before the standard error: one hiccup shall not cost a hundred repeats


@dataclass(frozen=True)
class Timing:
    """Of one call, in seconds: median, 10th and 90th percentile of `repeats` calls after the warm-up.

    relative_error   estimated standard error of the median over the median
    """

    seconds: float
    p10: float
    p90: float
    repeats: int
    relative_error: float


def wall_stopwatch(
    synchronise: Callable[[], object] = lambda: None, clock: Callable[[], float] = time.perf_counter
) -> Stopwatch:
    """The host's clock around the call, with the device idle before and after."""

    def stopwatch(thunk: Thunk) -> float:
        synchronise()
        started = clock()
        thunk()
        synchronise()
        return clock() - started

    return stopwatch


def cuda_stopwatch(device: torch.device) -> Stopwatch:
    """CUDA events around the call: from an idle device to the end of the last kernel, waits for launches included."""

    def stopwatch(thunk: Thunk) -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        first.record(torch.cuda.current_stream(device))
        thunk()
        last.record(torch.cuda.current_stream(device))
        torch.cuda.synchronize(device)
        return float(first.elapsed_time(last)) / 1e3  # it is in ms

    return stopwatch


def stopwatch_of(device: torch.device) -> Stopwatch:
    """CUDA events on a GPU, the host's clock on a CPU, the host's clock and a synchronisation elsewhere."""
    if device.type == "cuda":
        return cuda_stopwatch(device)
    if device.type == "cpu":
        return wall_stopwatch()
    module = getattr(torch, device.type)
    return wall_stopwatch(module.synchronize)


@dataclass(frozen=True)
class Timer:
    """Repeats a call until the standard error of its median is below `relative_error` of it, or `budget_s` is spent.

    warm_up   calls before the first that counts, in every measurement: each shape may compile or allocate anew
    fewest    repeats that are made as long as the budget allows; one is made whatever it costs
    most      repeats after which it stops
    """

    stopwatch: Stopwatch
    relative_error: float = 0.02
    budget_s: float = 1.0
    warm_up: int = 1
    fewest: int = 3
    most: int = 500

    @classmethod
    def of(cls, device: torch.device, **settings: Any) -> Timer:
        """With the stopwatch of the device."""
        return cls(stopwatch_of(device), **({"warm_up": 3 if device.type == "cuda" else 1} | settings))

    def measure(self, thunk: Thunk) -> Timing:
        """Time the thunk. The budget counts timed calls, not the warm-up."""
        for _ in range(self.warm_up):
            self.stopwatch(thunk)
        found: list[float] = []
        check_at = self.fewest
        while True:
            found.append(self.stopwatch(thunk))
            over = sum(found) >= self.budget_s or len(found) >= self.most
            if len(found) < check_at and not over:
                continue
            error = relative_error(np.array(found))
            if over or error < self.relative_error:
                p10, median, p90 = np.percentile(found, [10, 50, 90])
                return Timing(float(median), float(p10), float(p90), len(found), error)
            check_at = min(len(found) + max(1, len(found) // 4), self.most)


def relative_error(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Standard error of the median over the median, from the repeats without their tails."""
    cut = int(TRIMMED_SHARE * len(seconds))
    middle = np.sort(seconds)[cut : len(seconds) - cut]
    spread = float(middle.std(ddof=1)) if len(middle) > 1 else 0.0
    return MEDIAN_TO_MEAN_ERROR * spread / float(np.sqrt(len(middle))) / max(float(np.median(middle)), 1e-9)
