"""Whether a pass of a few tokens is better padded: some CPU kernels take 12 rows more slowly than 16."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from calibrate.timing import stopwatch_of

BUCKET = 16  # rows from which matrix products are blocked
SMALLEST = 7  # rows below are left alone: up to there unblocked kernels are no slower
PROBE = 12
GAIN = 1.15  # what the larger product must win to be worth it
REPEATS = 5


def pays(model: Any) -> bool:
    """Whether the model's largest matrix takes `PROBE` rows more slowly than `BUCKET`; never so but on a CPU."""
    parts = (part for part in model.modules() if isinstance(part, torch.nn.Linear))
    largest = max(parts, key=lambda part: part.weight.numel(), default=None)
    if largest is None or largest.weight.device.type != "cpu":
        return False
    stopwatch = stopwatch_of(largest.weight.device)
    seconds = {}
    with torch.no_grad():
        for rows in (PROBE, BUCKET):
            inputs = torch.ones(1, rows, largest.in_features, dtype=largest.weight.dtype)
            times = [stopwatch(partial(largest, inputs)) for _ in range(REPEATS + 1)]
            seconds[rows] = min(times[1:])  # the first warms up
    return seconds[PROBE] > GAIN * seconds[BUCKET]


def padded(rows: int, query: int) -> int:
    """New tokens a row with which a pass of `SMALLEST` tokens or more has `BUCKET` at least."""
    return -(-BUCKET // rows) if SMALLEST <= rows * query < BUCKET else query
