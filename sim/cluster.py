"""The SimPy cluster: clients that issue requests, replicas that step. One event per engine step and one per arrival.

Order at one instant, on every replica: the step that ends is committed, then requests that arrive are routed, then the
next step is scheduled. It does not depend on the order of rows in a trace with equal times.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from sim.control.engine import Engine
from sim.routers import Router
from traces.errors import InputError

Events = Generator[simpy.Event, None, None]


MOST_THINK_TIME_S = 1e9


@dataclass(frozen=True)
class ClientConfig:
    """The load generator.

    max_concurrency  requests in flight at most; further ones wait at the client until one ends (vLLM's bench), and
                     TTFT counts from then. An arrival time is the earliest moment a request is issued
    think_time_s     how long the client waits after an answer before that place issues its next request
    """

    max_concurrency: int | None = None
    think_time_s: float = 0.0

    def __post_init__(self) -> None:
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise InputError(f"max concurrency is {self.max_concurrency}, expected at least 1")
        if not 0 <= self.think_time_s <= MOST_THINK_TIME_S:
            raise InputError(f"think time is {self.think_time_s} s, expected 0 or more, at most {MOST_THINK_TIME_S:g}")
        if self.think_time_s and self.max_concurrency is None:
            raise InputError("think time needs a closed loop: give --max-concurrency too")


class Cluster:
    """Runs a workload's arrivals over the engines. `progress(completed)` is told now and then how far it is.

    env  another clock than SimPy's own, for engines that work in real time
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        router: Router,
        arrival_s: np.ndarray,
        client: ClientConfig,
        progress: Callable[[int], None] | None = None,
        env: simpy.Environment | None = None,
    ) -> None:
        self.env = env or simpy.Environment()
        self.engines = engines
        self.router = router
        self.client = client
        self.progress = progress
        self.ended = 0
        self._arrival_s: list[float] = arrival_s.tolist()
        self._next = 0
        self._places = [0.0] * min(client.max_concurrency or 0, len(arrival_s))  # when each may issue again: a heap
        self._idle: list[simpy.Event | None] = [None] * len(engines)
        self._client_waits: simpy.Event | None = None
        self.env.process(self._issue())
        for index in range(len(engines)):
            self.env.process(self._serve(index))

    def run(self, until_s: float | None = None) -> float:
        """Run to the end or until a time; what happens at that very instant is left out. Returns the clock, s."""
        self.env.run(until=until_s)
        return float(self.env.now)

    def _due(self) -> float | None:
        """When the next request is issued; None if there is none or no place is free."""
        if self._next == len(self._arrival_s):
            return None
        if self.client.max_concurrency is None:
            return self._arrival_s[self._next]
        return max(self._arrival_s[self._next], self._places[0]) if self._places else None

    def _issue_due(self) -> None:
        """Route every request that is due by now."""
        now = self.env.now
        while (due := self._due()) is not None and due <= now:
            request = self._next
            self._next += 1
            if self._places:
                heapq.heappop(self._places)
            replica = self.router(self.engines)
            if not self.engines[replica].submit(request, now):
                self._answered(1)
                continue
            wake = self._idle[replica]
            if wake is not None:
                self._idle[replica] = None
                wake.succeed()

    def _answered(self, requests: int) -> None:
        """Requests ended: their places at the client are free again after the think time."""
        self.ended += requests
        if self.client.max_concurrency is not None:
            for _ in range(requests):
                heapq.heappush(self._places, self.env.now + self.client.think_time_s)
            if self._client_waits is not None:
                self._client_waits.succeed()
                self._client_waits = None

    def _issue(self) -> Events:
        while True:
            self._issue_due()
            if self._next == len(self._arrival_s):
                return
            due = self._due()
            if due is None:
                self._client_waits = self.env.event()
                yield self._client_waits
            else:
                yield self.env.timeout(due - self.env.now)

    def _serve(self, index: int) -> Events:
        engine, env = self.engines[index], self.env
        while True:
            duration = engine.begin(env.now)
            if duration is None:
                self._idle[index] = woken = env.event()
                yield woken
                continue
            yield env.timeout(duration)
            finished = engine.finish(env.now)
            if finished:
                self._answered(len(finished))
                if self.progress is not None:
                    self.progress(self.ended)
            self._issue_due()
