"""A sweep small enough for a test: twelve requests of fixed length, a policy that fails among the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sim.config import SimConfig
from sim.sweep import expand
from sim.sweep.table import TABLE

BASE = SimConfig(trace="random", input_len=50, output_len=20, num_prompts=12, request_rate="8", acceptance="regimes")
FAILS = "fixed:k=-1"


def small(policies: tuple[str, ...] = ("fixed:k=2", FAILS), seeds: tuple[int, ...] = (0, 1)) -> list[SimConfig]:
    return [replace(BASE, policy=policy, seed=seed) for policy in policies for seed in seeds]


def grid(**axes: object) -> list[SimConfig]:
    """The product of `axes` on top of BASE."""
    fixed = {name: (getattr(BASE, name),) for name in ("trace", "input_len", "output_len", "num_prompts", "acceptance")}
    return expand({**fixed, **axes})


def table_bytes(directory: Path) -> bytes:
    return (directory / TABLE).read_bytes()
