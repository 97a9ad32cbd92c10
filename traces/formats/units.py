"""Units of time in trace files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from traces.options import TraceOptions

LIKELY_RATE_RPS = (0.002, 300.0)  # one server farm's trace; the same file misread by a factor of 1000 leaves this range


def seconds_per_unit(options: TraceOptions, default: Literal["s", "ms"]) -> float:
    return {"s": 1.0, "ms": 1e-3}[options.time_unit or default]


def unit_warning(times: Sequence[float], options: TraceOptions, default: Literal["s", "ms"]) -> list[str]:
    """A note where the numbers look like the other unit: a rate 1000 times off, or fractions of a millisecond.

    times: as in the file. Says nothing where the user has chosen the unit.
    """
    if options.time_unit or len(times) < 2:
        return []
    span_s = (max(times) - min(times)) * seconds_per_unit(options, default)
    rate = (len(times) - 1) / span_s if span_s > 0 else 0.0
    other = "s" if default == "ms" else "ms"
    low, high = LIKELY_RATE_RPS
    fractions = default == "ms" and any(time != int(time) for time in times)
    off = span_s > 0 and (rate > high if default == "ms" else rate < low)
    if not (off or fractions):
        return []
    return [
        f"Times read as {default} give {rate:.3g} requests/s{' and have fractions' if fractions else ''}: "
        f"if they are {other}, give --time-unit {other}."
    ]
