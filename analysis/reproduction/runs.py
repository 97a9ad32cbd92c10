"""The runs behind a reproduction: sweeps in folders of the output directory, means and ratios of what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.intervals import Estimate
from sim.config import SimConfig
from sim.intervals import ratio_interval
from sim.sweep import sweep
from sim.sweep.progress import bar
from traces.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

FIXED = tuple(f"fixed:k={k}" for k in (2, 4, 6, 8, 10))
"""static-opt is the best of these on each workload (arXiv 2509.01083), chosen on the runs that it is judged by."""
STATIC_OPT = "static-opt"


@dataclass(frozen=True)
class Setting:
    """What every experiment shares: where it writes, what it replays, how much of it."""

    directory: Path
    profile: str = SimConfig.profile
    acceptance: str = SimConfig.acceptance
    sampled_acceptance: str = "regimes"
    num_prompts: int = 128
    seeds: tuple[int, ...] = (0, 1, 2)
    jobs: int | None = None

    def base(self, trace: str, concurrency: int) -> SimConfig:
        """Everyone is there at once, and `concurrency` are served at a time."""
        return SimConfig(
            trace=trace,
            profile=self.profile,
            acceptance=self.acceptance,
            request_rate="inf",
            max_concurrency=concurrency,
        )

    def run(self, name: str, configs: Sequence[SimConfig]) -> DataFrame:
        """The table of an experiment. What its folder holds does not run again, unless it failed.

        Raises InputError if a run fails.
        """
        with bar() as progress:
            frame = sweep(configs, self.directory / name, jobs=self.jobs, retry_failed=True, progress=progress)
        if frame["error"].notna().any():
            raise InputError(f"{self.directory / name}: {frame['error'].dropna().iloc[0]}")
        return frame.assign(workload=[Path(trace).stem for trace in frame["trace"]])


Cells = dict[tuple[Any, Any], float]


def cells(runs: DataFrame, row: str, column: str, value: str) -> Cells:
    """Means over the seeds, by the values of two columns."""
    return {(at, by): float(own[value].mean()) for (at, by), own in runs.groupby([row, column])}


def best_fixed(runs: DataFrame, metric: str = "mean_e2el_ms") -> dict[str, str]:
    """Of each workload the fixed length of the least mean."""
    means = cells(runs[runs["policy"].isin(FIXED)], "workload", "policy", metric)
    workloads = dict.fromkeys(workload for workload, _ in means)
    return {name: min((p for w, p in means if w == name), key=lambda p: means[name, p]) for name in workloads}


def with_static_opt(runs: DataFrame, metric: str = "mean_e2el_ms") -> DataFrame:
    """The runs, and those of the best fixed length of each workload once more as policy `static-opt`."""
    import pandas as pd

    best = best_fixed(runs, metric)
    chosen = runs[runs["workload"].map(best) == runs["policy"]]
    return pd.concat([runs, chosen.assign(policy=STATIC_OPT)], ignore_index=True)


def by_seed(runs: DataFrame, metric: str) -> dict[int, float]:
    """Mean over the workloads of each seed, as the papers' means over their data sets."""
    return {seed: float(runs[runs["seed"] == seed][metric].mean()) for seed in runs["seed"].unique().tolist()}


def against(runs: DataFrame, policy: str, other: str, metric: str = "mean_e2el_ms") -> Estimate:
    """Mean over workloads of one policy / that of another, paired by seed."""
    above, below = (runs[runs["policy"] == name] for name in (policy, other))
    return ratio(above, below, metric)


def ratio(above: DataFrame, below: DataFrame, metric: str) -> Estimate:
    """The metric of some runs / that of others, paired by seed."""
    top, bottom = by_seed(above, metric), by_seed(below, metric)
    seeds = [seed for seed in top if seed in bottom]
    return Estimate(*ratio_interval([top[seed] for seed in seeds], [bottom[seed] for seed in seeds]), len(seeds))


def mean_of(runs: DataFrame, policy: str, metric: str) -> float:
    """Over workloads and seeds."""
    return float(runs[runs["policy"] == policy][metric].mean())
