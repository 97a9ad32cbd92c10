"""One engine: schedule, draft, verify, commit. It runs the same over a simulated and over a live executor."""

from __future__ import annotations

import math

import numpy as np

from sim.control.executor import Executor, Outcome, Plan
from sim.control.log import EventLog
from sim.control.scheduler import Scheduler
from sim.control.speculation import Speculation


class Engine:
    """`begin` starts a step and says how long it takes, `finish` books it when that time is over.

    Between the two, requests may be submitted; they are scheduled in the next step.
    """

    def __init__(
        self, scheduler: Scheduler, speculation: Speculation, executor: Executor, log: EventLog, replica: int = 0
    ) -> None:
        self.scheduler = scheduler
        self.speculation = speculation
        self.executor = executor
        self.log = log
        self.replica = replica
        self._step: tuple[Plan, Outcome, float, int, int] | None = None

    def submit(self, request: int, now_s: float) -> bool:
        """A request arrives. False if it is rejected."""
        return self.scheduler.submit(request, self.replica, now_s)

    def begin(self, now_s: float) -> float | None:
        """Schedule, draft and verify one step. Returns its duration in seconds, None if there is nothing to do."""
        scheduler = self.scheduler
        plan = scheduler.schedule()
        running, waiting = len(scheduler.batch), len(scheduler.waiting)
        self._tell_released()
        if plan is None:
            return None
        if plan.num_seqs == 0:
            raise RuntimeError(f"no progress at {now_s} s: {running} running, {waiting} waiting, nothing schedulable")
        if plan.admitted:
            self.speculation.begin(np.array(plan.admitted))
        outcome = self.executor.run(plan, self.speculation.stop, self.speculation.trim, self.speculation.accept)
        duration = outcome.time.total_s
        if not (math.isfinite(duration) and duration > 0):
            raise RuntimeError(f"a step of {duration} s at {now_s} s: costs must be finite and above 0")
        self._step = plan, outcome, now_s, running, waiting
        return duration

    def finish(self, now_s: float) -> list[int]:
        """Commit the step that `begin` started. Returns the requests that finished with it."""
        assert self._step is not None
        plan, outcome, started_s, running, waiting = self._step
        self._step = None
        decode, log, step = plan.decode, self.log, len(self.log.steps)
        before = log.emissions.size
        if len(decode):
            self.speculation.observe(decode, outcome)
        finished = self.scheduler.commit(plan, outcome, step, now_s)
        self._tell_released()
        new = log.emissions.rows(before)
        time, drafted = outcome.time, int(outcome.proposed.sum())
        log.steps.append(
            (
                self.replica,
                started_s,
                now_s,
                time.draft_s,
                time.verify_s,
                time.prefill_s,
                time.host_s,
                time.switch_s,
                time.hidden_draft_s,
                time.wasted_draft_s,
                len(decode),
                len(plan.prefill_slot),
                sum(plan.prefill_tokens),
                int(outcome.proposed.max()) if drafted else 0,
                drafted,
                int(outcome.verified.sum()) if outcome.verified is not outcome.proposed else drafted,
                int(new["accepted"].sum()),
                int(new["tokens"].sum()),
                running,
                waiting,
                plan.kv_blocks_used,
                plan.preempted,
            )
        )
        return finished

    def _tell_released(self) -> None:
        if self.scheduler.released:
            self.executor.release(self.scheduler.released)
            self.scheduler.released = []
