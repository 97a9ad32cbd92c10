"""Event logs made by hand for the tests of everything that reads one."""

from __future__ import annotations

import numpy as np

from sim.control.log import FINISHED, NO_DECODE, REJECTED, STEP_COLUMNS, EventLog
from traces.workload import Workload


def workload(prompts: list[int], outputs: list[int], arrivals: list[float] | None = None, **fields) -> Workload:
    arrival_s = np.array(arrivals if arrivals is not None else [0.0] * len(prompts), np.float64)
    return Workload("hand", "synthetic", arrival_s, np.array(prompts), np.array(outputs), True, **fields)


class Scribe:
    """Writes a log step by step.

    `emit` rows: (request, tokens) for the end of a prefill, (request, tokens, k, accepted) for a decode step.
    """

    def __init__(self, requests: Workload) -> None:
        self.workload = requests
        self.log = EventLog(len(requests))

    def arrive(self, *requests: int) -> Scribe:
        """Make requests arrive at the server: queued until something else happens to them."""
        for request in requests or range(len(self.workload)):
            self.log.requests.arrival_s[request] = self.workload.arrival_s[request]
            self.log.requests.status[request] = 0
        return self

    def step(self, start_s: float, end_s: float, emit: list[tuple[int, ...]] = (), **columns: float) -> Scribe:
        decode = [row for row in emit if len(row) == 4]
        ks, length_s = [row[2] for row in decode], end_s - start_s
        row = dict.fromkeys(STEP_COLUMNS, 0.0) | {"start_s": start_s, "end_s": end_s}
        row |= {"num_decode": len(decode), "num_prefill": len(emit) - len(decode)}
        row |= {"max_draft": max(ks, default=0), "drafted": sum(ks), "verified": sum(ks)}
        row |= {"accepted": sum(row[3] for row in decode), "emitted": sum(row[1] for row in emit)}
        row |= {"verify_s" if decode else "prefill_s": length_s, "running": len(emit)}
        self.log.steps.append(tuple(float((row | columns)[name]) for name in STEP_COLUMNS))
        for request, tokens, *draft in emit:
            k, accepted = draft or (NO_DECODE, 0)
            index = len(self.log.steps) - 1
            self.log.emissions.append(np.array([request]), index, np.array([tokens]), k, max(k, 0), accepted)
            self.log.requests.status[request] = 1
            self.log.requests.replica[request] = int(columns.get("replica", 0))
        return self

    def finish(self, *requests: int, reason: str = "length") -> Scribe:
        """The last step ended these requests."""
        for request in requests:
            self.log.requests.status[request] = FINISHED
            self.log.requests.finish_s[request] = self.log.steps[-1][STEP_COLUMNS.index("end_s")]
            self.log.requests.reason[request] = reason
        return self

    def reject(self, request: int, reason: str) -> Scribe:
        self.log.requests.status[request] = REJECTED
        self.log.requests.reason[request] = reason
        return self
