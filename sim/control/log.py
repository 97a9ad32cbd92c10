"""What happened, as columns: one row per engine step, one per emission, one per request. Every metric derives from it.

The step loop only appends; nothing is aggregated while the clock runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

STEP_COLUMNS = (
    "replica",  # index of the replica
    "start_s",  # the step was scheduled
    "end_s",  # its tokens reached the clients
    "draft_s",  # draft passes, their prefill and catching up included
    "verify_s",  # target pass, the share of decoding sequences
    "prefill_s",  # target pass, the share of prefill chunks
    "host_s",  # scheduling, sampling, transfers, and what a change of the verification's width costs
    "switch_s",  # of the host's time: the change of width
    "hidden_draft_s",  # drafting beside the target's pass, in no sum
    "wasted_draft_s",  # drafting ahead that was thrown away
    "num_decode",  # sequences that decoded
    "num_prefill",  # sequences that prefilled a chunk
    "prefill_tokens",
    "max_draft",  # depth of the draft: the longest k of the batch
    "drafted",  # sum of proposed tokens
    "verified",  # sum of verified draft tokens
    "accepted",  # sum of accepted draft tokens that were kept
    "emitted",  # tokens that left the engine, first tokens of prefills included
    "running",  # sequences holding a slot when the step was scheduled
    "waiting",  # requests queued when the step was scheduled
    "kv_blocks_used",  # reserved while the step ran
    "preempted",  # sequences thrown out to make room for this step
)

QUEUED, RUNNING, FINISHED, REJECTED, UNBORN = 0, 1, 2, 3, 4
"""Status of a request. UNBORN: not yet arrived when the run stopped."""

NO_DECODE = -1
"""`proposed` of an emission that ends a prefill: it is no decode step and counts in no acceptance figure."""


@dataclass
class EmissionLog:
    """One row per (step, sequence that emitted), in time order per request. Grows by doubling.

    request, step: int32; the others int16; tokens >= 1. `accepted` counts draft tokens that were kept, so that an
    accepted token cut off by the end of the request is not in it; `lossy` those of them that only a lossy acceptance
    rule let stand.
    """

    size: int = 0
    _columns: dict[str, NDArray[np.int32] | NDArray[np.int16]] = field(default_factory=dict)

    NAMES = ("request", "step", "tokens", "proposed", "verified", "accepted", "lossy")

    def __post_init__(self) -> None:
        for name in self.NAMES:
            wide = name in ("request", "step")
            self._columns[name] = np.empty(1024, np.int32) if wide else np.empty(1024, np.int16)

    def append(
        self,
        request: NDArray[np.int64],
        step: int,
        tokens: NDArray[np.int64],
        proposed: NDArray[np.int64] | int = NO_DECODE,
        verified: NDArray[np.int64] | int = 0,
        accepted: NDArray[np.int64] | int = 0,
        lossy: NDArray[np.int64] | int = 0,
    ) -> None:
        start, end = self.size, self.size + len(request)
        if end > len(self._columns["request"]):
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate([column, np.empty(max(len(column), end - start), column.dtype)])
        columns = self._columns
        columns["request"][start:end] = request
        columns["step"][start:end] = step
        columns["tokens"][start:end] = tokens
        columns["proposed"][start:end] = proposed
        columns["verified"][start:end] = verified
        columns["accepted"][start:end] = accepted
        columns["lossy"][start:end] = lossy
        self.size = end

    def rows(self, start: int) -> dict[str, NDArray[np.int32] | NDArray[np.int16]]:
        """The columns from row `start` on, as views."""
        return {name: column[start : self.size] for name, column in self._columns.items()}

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        return self._columns[name][: self.size].astype(np.int64)


class RequestLog:
    """One row per request of the workload, in its order.

    status            QUEUED, RUNNING, FINISHED, REJECTED or UNBORN
    arrival_s         when the request reached the server (NaN if it never did); TTFT and E2EL count from here
    finish_s          end of its last step (NaN unless finished)
    output_limit      tokens it will generate: the trace's, clipped by max_model_len; int64
    replica, preemptions, cached_tokens: int64; cached_tokens: prompt tokens found in the prefix cache
    reason            why rejected, or "stop" / "length" for how it finished: request -> text
    """

    def __init__(self, num_requests: int) -> None:
        self.status = np.full(num_requests, UNBORN, np.int8)
        self.arrival_s = np.full(num_requests, np.nan)
        self.finish_s = np.full(num_requests, np.nan)
        self.output_limit = np.zeros(num_requests, np.int64)
        self.replica = np.full(num_requests, -1, np.int64)
        self.preemptions = np.zeros(num_requests, np.int64)
        self.cached_tokens = np.zeros(num_requests, np.int64)
        self.reason: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.status)


class EventLog:
    """The columns of one run. `steps` is a list of tuples in the order of STEP_COLUMNS."""

    def __init__(self, num_requests: int) -> None:
        self.steps: list[tuple[float, ...]] = []
        self.emissions = EmissionLog()
        self.requests = RequestLog(num_requests)

    def step_columns(self) -> dict[str, NDArray[np.float64]]:
        table = np.array(self.steps, np.float64).reshape(len(self.steps), len(STEP_COLUMNS))
        return {name: table[:, index] for index, name in enumerate(STEP_COLUMNS)}
