"""Capacity: the highest request rate at which enough requests meet the SLO, by bisection, for several policies at once.

Every policy and seed has its own search; those of one round are one sweep, so they run in parallel and resume. All
replay the same requests with the same luck per seed: the ratio of two capacities is taken seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sim.config import SimConfig
from traces.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

RESOLUTION = 0.03
"""Relative width of the interval in which a search ends."""
MOST_DOUBLINGS = 10

Search = tuple[str, int]
"""Policy and seed."""

Run = Callable[[Sequence[SimConfig]], "DataFrame"]


@dataclass
class Bracket:
    """What a search knows: `low` meets the SLO, `high` does not; rates relative to the start of the search."""

    low: float | None = None
    high: float | None = None

    @property
    def done(self) -> bool:
        if self.low is None:
            return self.high is not None and self.high <= 2.0**-MOST_DOUBLINGS
        return self.low >= 2.0**MOST_DOUBLINGS if self.high is None else self.high <= (1 + RESOLUTION) * self.low

    @property
    def next(self) -> float:
        """The rate to try: outwards by factors of two until both ends are known, then the geometric middle."""
        if self.low is None and self.high is None:
            return 1.0
        if self.low is None:
            return (self.high or 1.0) / 2
        return 2 * self.low if self.high is None else (self.low * self.high) ** 0.5

    def learn(self, rate: float, met: bool) -> None:
        if met:
            self.low = rate
        else:
            self.high = rate


def capacities(
    base: SimConfig, policies: Sequence[str], seeds: Sequence[int], attainment: float, run: Run
) -> Mapping[Search, float]:
    """Highest rate within the SLO per policy and seed, in requests per second, or as a factor where `base` replays the
    trace's own times; 0 where no rate meets it, inf where every rate tried did. Raises InputError where a run fails.

    attainment  share of requests that must meet the SLO
    """
    found = {(policy, seed): Bracket() for policy in policies for seed in seeds}
    start = start_of(base)
    while going := {search: bracket.next for search, bracket in found.items() if not bracket.done}:
        configs = [at_rate(base, start * rate, policy, seed) for (policy, seed), rate in going.items()]
        frame = run(configs)
        if frame["error"].notna().any():
            raise InputError(f"capacity cannot be found: {frame['error'].dropna().iloc[0]}")
        met = dict(
            zip(zip(frame["policy"], frame["seed"], strict=True), frame["slo_attainment"] >= attainment, strict=True)
        )
        for search, rate in going.items():
            found[search].learn(rate, bool(met[search]))
    return {search: _rate(bracket, start) for search, bracket in found.items()}


def start_of(base: SimConfig) -> float:
    """Where the searches begin: the rate of the settings, 1 where there is none."""
    word = base.request_rate or ""
    try:
        rate = float(word.removeprefix("trace").removeprefix("*") or 1.0)
    except ValueError:
        return 1.0
    return rate if 0 < rate < float("inf") else 1.0


def at_rate(base: SimConfig, rate: float, policy: str, seed: int) -> SimConfig:
    """The settings at another rate; of the trace's own times where `base` asks for those."""
    word = f"{rate:.5g}"
    word = f"trace*{word}" if (base.request_rate or "").startswith("trace") else word
    return replace(base, policy=policy, seed=seed, request_rate=word)


def _rate(bracket: Bracket, start: float) -> float:
    if bracket.low is None:
        return 0.0
    return float("inf") if bracket.high is None else start * bracket.low
