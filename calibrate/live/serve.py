"""Serve a workload with real models: the simulator's engine over the live executor, in real or in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from calibrate.live.clock import WallEnvironment
from calibrate.live.executor import LiveExecutor, LiveSettings
from calibrate.live.texts import Texts
from calibrate.memory import is_out_of_memory
from calibrate.pairs import Pair
from sim.cluster import ClientConfig, Cluster
from sim.control.engine import Engine
from sim.control.log import EventLog
from sim.replay.acceptance import Replay
from sim.replay.profile import Profile
from sim.replay.simulated import SimulatedExecutor
from sim.replay.sources import acceptance_source
from sim.routers import routers
from sim.serve import ServerConfig, make_engine
from traces.errors import InputError
from traces.workload import Workload


@dataclass(frozen=True)
class LiveRun:
    """What happened.

    ended_s      the clock when the run stopped
    interrupted  stopped by Ctrl-C: the log holds what was finished
    failure      what broke the run off, in one line; None if nothing did
    """

    log: EventLog
    texts: Texts
    ended_s: float
    interrupted: bool
    failure: str | None
    engine: Engine
    executor: LiveExecutor


class LiveServer:
    """One engine with its models, ready to run.

    profile    costs, for the virtual clock and for policies that ask; None: the wall clock and no predictions
    wall       whether steps take their own time; otherwise what the profile says
    skip_idle  on the wall clock: jump over stretches without work

    Raises InputError for settings that do not fit the models or the memory, and for a policy or cap that does not
    exist or has wrong options.
    """

    def __init__(
        self,
        pair: Pair,
        workload: Workload,
        prompts: Any,
        server: ServerConfig,
        settings: LiveSettings,
        *,
        profile: Profile | None = None,
        wall: bool = True,
        skip_idle: bool = False,
        client: ClientConfig | None = None,
        seed: int = 0,
    ) -> None:
        limits = np.minimum(workload.output_tokens, np.maximum(server.scheduler.max_model_len, 1))
        self.texts = Texts(prompts, limits)
        self.log = EventLog(len(workload))
        self.env: simpy.Environment = WallEnvironment(skip_idle=skip_idle) if wall else simpy.Environment()
        costs = None if profile is None else _costs(profile, workload, server, settings.max_draft_tokens)
        self.executor = LiveExecutor(pair, self.texts, settings, since=self._since if wall else None, costs=costs)
        self.engine = make_engine(self.executor, workload, server, self.log, seed)
        self.executor.prepare(self.engine.speculation.speculates)
        self.config = server
        self.workload = workload
        self._client = client or ClientConfig()

    def _since(self) -> float:
        """Seconds since the step was begun. Never quite 0, as a step may not be."""
        assert isinstance(self.env, WallEnvironment)
        return max(self.env.wall_s - float(self.env.now), 1e-9)

    def run(self, progress: Callable[[int], None] | None = None) -> LiveRun:
        """Serve until all requests have ended, Ctrl-C, or a failure of the models: none of them raises."""
        router = routers["round-robin"](np.random.default_rng(0))
        cluster = Cluster([self.engine], router, self.workload.arrival_s, self._client, progress, self.env)
        interrupted, failure = False, None
        if isinstance(self.env, WallEnvironment):
            self.env.restart()
        try:
            cluster.run()
        except KeyboardInterrupt:
            interrupted = True
        except Exception as error:  # whatever the models raise: what was finished is kept
            failure = _one_line(error)
        self._say_why_finished()
        return LiveRun(self.log, self.texts, float(self.env.now), interrupted, failure, self.engine, self.executor)

    def _say_why_finished(self) -> None:
        """The scheduler knows limits alone: an end token is "stop", the limit "length", as in vLLM."""
        for request, reason in self.log.requests.reason.items():
            if reason in ("stop", "length"):
                self.log.requests.reason[request] = "stop" if self.texts.ended[request] else "length"


def _costs(profile: Profile, workload: Workload, server: ServerConfig, depth: int) -> SimulatedExecutor:
    """The cost model; the acceptance that comes with it is never asked."""
    windows = acceptance_source("positions:" + ",".join(["0.5"] * depth))
    return SimulatedExecutor(profile, Replay(windows, workload, 0), server.execution)


def _one_line(error: Exception) -> str:
    if isinstance(error, InputError):
        return str(error)
    if is_out_of_memory(error):
        return "out of memory while serving: use fewer --max-num-seqs, a shorter --max-model-len or shorter drafts"
    text = " ".join(str(error).split())
    return f"the models failed: {type(error).__name__}: {text[:200]}"
