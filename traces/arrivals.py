"""When requests arrive: Poisson, gamma with vLLM's burstiness, all at once, ramping up, or the trace's own times.

A closed loop (--max-concurrency) is not an arrival process; the simulator's cluster enforces it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.randomness import Stream, generator

RampUpStrategy = Literal["linear", "exponential"]


@dataclass(frozen=True)
class OwnTimes:
    """The trace's own times, played `density` times as fast."""

    density: float = 1.0


@dataclass(frozen=True)
class DrawnRate:
    """Arrivals drawn at a mean rate in requests per second; inf is all at once."""

    rate_rps: float


LONGEST_S = 1e8
"""Three years. Peaks by the second take memory for each of them."""


def parse_request_rate(text: str) -> OwnTimes | DrawnRate:
    """Read `--request-rate`: `inf`, `trace`, `trace*4` (the trace's times at four times the density), or a number."""
    value = text.strip().lower()
    if value == "trace":
        return OwnTimes()
    own_times = value.startswith("trace*")
    try:
        number = float(value.removeprefix("trace*"))
    except ValueError:
        number = math.nan
    # `inf` is written out: a number so large that it overflows is a slip, not a request for all at once
    if not number > 0 or (math.isinf(number) and value not in ("inf", "infinity")):
        raise InputError(f"--request-rate {text}: expected a rate above 0 in requests/s, inf, trace, or trace*FACTOR")
    return OwnTimes(number) if own_times else DrawnRate(number)


def draw_arrivals(n: int, rate_rps: float, burstiness: float = 1.0, seed: int = 0) -> NDArray[np.float64]:
    """Arrival times of `n` requests in seconds, the first at 0. shape: [n].

    The gaps are gamma distributed with mean 1/rate and shape `burstiness`, as in `vllm bench serve`: 1 is Poisson,
    below 1 is burstier (the gaps' coefficient of variation is 1/sqrt(burstiness)), inf is a metronome. Unlike vLLM, the
    times are not stretched afterwards to last exactly n/rate seconds, so that they stay a renewal process and the first
    n of a longer draw are the draw of n. One seed gives the same gaps at every rate, up to the rate.
    Raises `InputError` unless rate and burstiness are above 0.
    """
    _require_above_zero("--request-rate", rate_rps)
    return _accumulate(np.full(n, 1.0 / rate_rps), burstiness, seed)


def draw_ramp_up(
    n: int, strategy: RampUpStrategy, start_rps: float, end_rps: float, burstiness: float = 1.0, seed: int = 0
) -> NDArray[np.float64]:
    """Arrival times in seconds while the rate climbs from start to end over the requests, as in vLLM. shape: [n].

    The rate of request i of n is start + (end - start) i/(n - 1) (linear) or start (end/start)^(i/(n - 1))
    (exponential): it follows the count of requests, not the clock.
    Raises `InputError` unless 0 < start <= end, both finite.
    """
    _require_above_zero("--ramp-up-start-rps", start_rps)
    _require_above_zero("--ramp-up-end-rps", end_rps)
    if start_rps > end_rps or math.isinf(end_rps):
        raise InputError(f"--ramp-up-end-rps {end_rps:g}: expected a finite rate of at least the start, {start_rps:g}")
    progress = np.arange(n) / max(n - 1, 1)
    if strategy == "linear":
        rates = start_rps + (end_rps - start_rps) * progress
    else:
        rates = start_rps * (end_rps / start_rps) ** progress
    return _accumulate(1.0 / rates, burstiness, seed)


def _accumulate(mean_gaps_s: NDArray[np.float64], burstiness: float, seed: int) -> NDArray[np.float64]:
    _require_above_zero("--burstiness", burstiness)
    n = len(mean_gaps_s)
    random = generator(seed, Stream.ARRIVALS)
    unit_gaps = np.ones(n) if math.isinf(burstiness) else random.gamma(burstiness, 1.0 / burstiness, n)
    times = np.cumsum(unit_gaps * mean_gaps_s)
    if not times[-1:].sum() <= LONGEST_S:  # infinities and NaN included
        raise InputError(f"the request rate is so low that arrival times overflow: they reach beyond {LONGEST_S:g} s")
    return times - times[:1]


def _require_above_zero(flag: str, value: float) -> None:
    if not value > 0:  # NaN included
        raise InputError(f"{flag} {value:g}: expected a number above 0")
