"""Decisions of a live run against those of the simulator that replays the very same texts, step by step.

Greedy texts do not depend on how they are served: windows recorded along them say all that a draft and a target will
say, and both executors, under one cost model's clock, must schedule, draft and accept alike. Where they do not, two
logits or a policy's threshold were nearly tied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.bank import Trajectory, assemble
from sim.cluster import ClientConfig, Cluster
from sim.control.batch import Ints
from sim.control.log import EventLog
from sim.replay.acceptance import Replay
from sim.replay.profile import Profile
from sim.replay.simulated import SimulatedExecutor
from sim.replay.windows import Windows
from sim.routers import routers
from sim.serve import ServerConfig, make_engine
from traces.workload import Workload

COLUMNS = ("tokens", "proposed", "verified", "accepted")


class OwnReplay(Replay):
    """Request i replays trajectory i from its start: row r is the window after output token r."""

    @staticmethod
    def _recorded(windows: Windows, workload: Workload, seed: int) -> tuple[Ints, Ints]:
        # with e tokens written the window is row e - 1: an offset of one row before the first, wrapped around
        return np.arange(len(workload)), windows.rows_of - 1


@dataclass(frozen=True)
class Difference:
    """The first emission of a request that is not the same: its number, and (tokens, proposed, verified, accepted) live
    and simulated; None where a run has none."""

    request: int
    emission: int
    live: tuple[int, ...] | None
    simulated: tuple[int, ...] | None


@dataclass(frozen=True)
class Comparison:
    """Decode steps of sequences that both runs took alike, of how many; the first difference of each request."""

    same: int
    steps: int
    differences: tuple[Difference, ...]
    same_steps: bool
    """Whether every emission also fell into the same engine step: the two schedules are one."""


def simulated(
    workload: Workload, trajectories: Sequence[Trajectory], server: ServerConfig, profile: Profile, *, seed: int = 0
) -> EventLog:
    """The simulator's run of requests whose texts are `trajectories`, in order; each of two tokens or more, and
    `output_tokens` of the workload their lengths."""
    windows = assemble(trajectories, "the requests' own texts")
    executor = SimulatedExecutor(profile, OwnReplay(windows, workload, seed), server.execution)
    log = EventLog(len(workload))
    engine = make_engine(executor, workload, server, log, seed)
    router = routers["round-robin"](np.random.default_rng(0))
    Cluster([engine], router, workload.arrival_s, ClientConfig()).run()
    return log


def compare(live: EventLog, replayed: EventLog) -> Comparison:
    """Emission by emission of each request. After its first difference a request is not compared any further, and all
    of its later steps count as different."""
    ours, theirs = _by_request(live), _by_request(replayed)
    differences, same, steps = [], 0, 0
    for request in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(request, []), theirs.get(request, [])
        steps += max(len(a), len(b))
        alike = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        same += alike
        if alike < max(len(a), len(b)):
            first = (run[alike] if alike < len(run) else None for run in (a, b))
            differences.append(Difference(request, alike, *first))
    one_schedule = all(np.array_equal(live.emissions[name], replayed.emissions[name]) for name in ("request", "step"))
    return Comparison(same, steps, tuple(differences), one_schedule)


def _by_request(log: EventLog) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    columns = (log.emissions[name].tolist() for name in COLUMNS)
    for request, *values in zip(log.emissions["request"].tolist(), *columns, strict=True):
        found.setdefault(request, []).append(tuple(values))
    return found
