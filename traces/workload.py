"""A workload: which requests arrive, when, and how long they are. Validated once, here, at the door."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError


@dataclass(frozen=True)
class PrefixBlocks:
    """Content hashes of each request's prompt, in blocks of `block_tokens`; equal ids are equal prompt prefixes.

    `ids[offsets[i]:offsets[i + 1]]` are the blocks of request i, first block first. offsets: [n + 1], ids: [m].
    """

    block_tokens: int
    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]

    def of(self, request: int) -> NDArray[np.int64]:
        return self.ids[self.offsets[request] : self.offsets[request + 1]]

    def take(self, rows: NDArray[np.int64]) -> PrefixBlocks:
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        ids = np.concatenate([self.of(int(row)) for row in rows]) if len(rows) else self.ids[:0]
        return PrefixBlocks(self.block_tokens, offsets, ids.astype(np.int64))


@dataclass(frozen=True)
class Workload:
    """Requests sorted by arrival. All arrays have one entry per request.

    name           what the user asked for: a named trace or a file
    origin         how the rows came to be, for every output: "replayed from FILE", "sampled from ..." or "synthetic"
    arrival_s      float64, seconds from the first request on, non-decreasing; all zero where all arrive at once
    prompt_tokens  int64, at least 1
    output_tokens  int64, at least 1: tokens the request generates, the first token included
    task           names of tasks, indexed by `task_id`; a trace without tasks has the one task ""
    task_id        int64
    has_times      whether `arrival_s` are the trace's own times; if not, the first note says how they were drawn
    prefix_blocks  content of the prompts for prefix caching, or None
    dropped        rows of the source that are no requests, by reason
    notes          what was estimated, repeated, sorted or assumed, one sentence each
    """

    name: str
    origin: str
    arrival_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    has_times: bool = False
    task: tuple[str, ...] = ("",)
    task_id: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    prefix_blocks: PrefixBlocks | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.arrival_s)
        if len(self.task_id) == 0:
            object.__setattr__(self, "task_id", np.zeros(n, np.int64))
        if n == 0:
            raise InputError(f"{self.name}: the trace holds no request{self._dropped_clause()}")
        if not len(self.prompt_tokens) == len(self.output_tokens) == len(self.task_id) == n:
            raise ValueError("columns of a workload differ in length")
        if not np.isfinite(self.arrival_s).all() or (np.diff(self.arrival_s) < 0).any():
            raise ValueError("arrivals must be finite and sorted")
        if min(self.prompt_tokens.min(), self.output_tokens.min()) < 1:
            raise ValueError("prompt and output of a request have at least one token")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def offered_rate_rps(self) -> float:
        """Requests per second over the span of the arrivals; inf where all arrive at once."""
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span if span > 0 else float("inf")

    def take(self, rows: NDArray[np.int64]) -> Workload:
        """The given rows, in the given order, with arrivals counted from the first of them."""
        arrival = self.arrival_s[rows]
        return replace(
            self,
            arrival_s=arrival - (arrival[0] if len(arrival) else 0.0),
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            task_id=self.task_id[rows],
            prefix_blocks=self.prefix_blocks.take(rows) if self.prefix_blocks else None,
        )

    def _dropped_clause(self) -> str:
        return "".join(f"; {count} dropped: {reason}" for reason, count in self.dropped.items())
