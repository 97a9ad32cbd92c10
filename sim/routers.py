"""Which replica takes a request: each router is a function of the engines and a random generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from sim.control.engine import Engine
from traces.registry import Registry

Router = Callable[[Sequence[Engine]], int]
routers: Registry[Callable[[np.random.Generator], Router]] = Registry("router")


@routers.register("round-robin")
def round_robin(rng: np.random.Generator) -> Router:
    """One after the other."""
    turn = count()
    return lambda engines: next(turn) % len(engines)


@routers.register("random")
def random(rng: np.random.Generator) -> Router:
    """Any, with equal chance."""
    return lambda engines: int(rng.integers(len(engines)))


@routers.register("least-requests")
def least_requests(rng: np.random.Generator) -> Router:
    """The one with the fewest requests queued or running; ties go to the lowest index."""
    return lambda engines: min(range(len(engines)), key=lambda i: engines[i].scheduler.num_unfinished)


@routers.register("least-kv")
def least_kv(rng: np.random.Generator) -> Router:
    """The one with the fewest KV blocks in use; ties go to the fewest requests, then the lowest index."""
    return lambda engines: min(
        range(len(engines)), key=lambda i: (engines[i].scheduler.kv.used, engines[i].scheduler.num_unfinished)
    )
