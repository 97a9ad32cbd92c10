"""K by batch size, from the cost model and the acceptance windows: what a deployed engine looks up each step.

For b sequences of the workload's mean context that all draft K tokens, the expected rate is

    b * E(K) / T(b, K)        E: tokens per step of a sequence, T: seconds of the step without prefill

E is counted by walking the workload's requests over their windows with that K throughout, so that stretches in which
little is accepted, and where more steps are made, weigh as much as they will. K(b) is the best K; along b it changes
only where another brings MIN_GAIN more, because every change of width costs engines graphs and users surprises [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sim.config import SimConfig
from sim.control.batch import DecodeBatch, Floats, Ints
from sim.replay.acceptance import Replay
from sim.replay.drafting import with_draft_kind
from sim.replay.simulated import SimulatedExecutor
from sim.simulate import Inputs, server_config
from traces.errors import InputError
from traces.workload import Workload

MIN_GAIN = 0.02
"""Share by which another K must be faster to be worth a change [O]."""
WALKED = 512
"""Requests that are walked to count tokens per step."""

Row = tuple[int, int, int]


@dataclass(frozen=True)
class Schedule:
    """K of every batch size, and the figures it was chosen by.

    k               int64[B]: K at batch b = index + 1
    emitted         float64[K + 1]: tokens per step and sequence, by draft length
    rate            float64[B, K + 1]: tokens per second, by batch and draft length
    context_tokens  mean context of a decode step, at which this holds
    """

    k: Ints
    emitted: Floats
    rate: Floats
    context_tokens: int

    @property
    def rows(self) -> list[Row]:
        """[first, last, K], ascending, without gaps."""
        return ranges(self.k)

    @property
    def speedup(self) -> Floats:
        """float64[B, K + 1]: rate over that of plain decoding at the same batch."""
        return self.rate / self.rate[:, :1]

    def crossover(self, k: int | None = None) -> int | None:
        """The smallest batch from which on speculation does not pay: with K = k, or with any. None: it always pays."""
        speedup = self.speedup[:, 1:].max(axis=1) if k is None else self.speedup[:, k]
        pays = np.flatnonzero(speedup > 1)
        last = int(pays[-1]) + 1 if len(pays) else 0
        return None if last == len(speedup) else last + 1


def ranges(k: Ints) -> list[Row]:
    """Runs of equal K over batches 1, 2, ..."""
    starts = [0, *(np.flatnonzero(np.diff(k)) + 1).tolist()]
    ends = [*starts[1:], len(k)]
    return [(first + 1, last, int(k[first])) for first, last in zip(starts, ends, strict=True)]


def executor_of(config: SimConfig, inputs: Inputs) -> SimulatedExecutor:
    """Costs and acceptance as the simulation of `config` has them."""
    profile = with_draft_kind(inputs.profile, config.draft_kind)
    replay = Replay(inputs.windows, inputs.workload, config.seed)
    return SimulatedExecutor(profile, replay, server_config(config, profile).execution)


def schedule(
    config: SimConfig, inputs: Inputs, max_k: int, context_tokens: int | None = None, emitted: Floats | None = None
) -> Schedule:
    """The schedule for batches up to max_num_seqs and K up to `max_k`, at the workload's mean context or another.

    `emitted` may be taken from an earlier call. Raises InputError where nothing decodes.
    """
    executor = executor_of(config, inputs)
    max_k = min(max_k, executor.max_draft_tokens)
    if max_k < 1:
        raise InputError(f"--max-k {max_k}: expected a whole number of at least 1")
    if emitted is None:
        emitted = emitted_per_step(executor, inputs.workload, max_k)
    context = mean_context(inputs.workload) if context_tokens is None else context_tokens
    seconds = np.stack([_seconds(executor, size, context, max_k) for size in range(1, config.max_num_seqs + 1)])
    rate = np.arange(1, config.max_num_seqs + 1)[:, None] * emitted / seconds
    return Schedule(choose(rate), emitted, rate, context)


def choose(rate: Floats) -> Ints:
    """The best K of every batch, kept from the batch below while no other is MIN_GAIN faster."""
    chosen: list[int] = []
    for row in rate:
        best = int(row.argmax())
        if chosen and row[best] < (1 + MIN_GAIN) * row[chosen[-1]]:
            best = chosen[-1]
        chosen.append(best)
    return np.array(chosen, np.int64)


def mean_context(workload: Workload) -> int:
    """Tokens in the KV cache of a sequence, the mean over its decode steps."""
    decodes = workload.output_tokens - 1
    if not decodes.any():
        raise InputError(f"{workload.name}: every output is one token long: nothing decodes, nothing to speculate on")
    return round(float((decodes * (workload.prompt_tokens + workload.output_tokens / 2)).sum() / decodes.sum()))


def emitted_per_step(executor: SimulatedExecutor, workload: Workload, max_k: int) -> Floats:
    """Tokens per decode step and sequence with K = 0..max_k throughout, float64[max_k + 1]."""
    request = np.flatnonzero(workload.output_tokens > 1)[:WALKED]
    return np.array([1.0, *(_walk(executor, workload, request, k) for k in range(1, max_k + 1))])


def _walk(executor: SimulatedExecutor, workload: Workload, request: Ints, k: int) -> float:
    emitted, steps = np.ones(len(request), np.int64), 0  # the first token is the prefill's
    limit = workload.output_tokens[request]
    tokens = int((limit - 1).sum())
    while len(request):
        steps += len(request)
        known = workload.prompt_tokens[request] + emitted
        batch = DecodeBatch(request, request, known, known - 1, emitted, limit - emitted, 0.0, len(request), 0)
        emitted = emitted + 1 + np.minimum(executor.accepted_runs(batch), np.minimum(k, limit - emitted - 1))
        going = emitted < limit
        request, emitted, limit = request[going], emitted[going], limit[going]
    return tokens / steps


def _seconds(executor: SimulatedExecutor, size: int, context: int, max_k: int) -> Floats:
    """Of a step of `size` sequences, float64[max_k + 1]; the draft's cache lacks the newest token, as after a step."""
    slot = np.arange(size)
    known = np.full(size, context)
    batch = DecodeBatch(slot, np.zeros(size, np.int64), known, known - 1, slot + 1, slot + 1, 0.0, size, 0)
    lengths = np.repeat(np.arange(max_k + 1)[:, None], size, axis=1)
    return executor.step_seconds_many(batch, lengths)


def by_context(config: SimConfig, inputs: Inputs, max_k: int, emitted: Floats) -> list[tuple[int, int, Schedule]]:
    """Schedules at contexts of their own: (first, last context in tokens, schedule), equal neighbours joined."""
    found: list[tuple[int, int, Schedule]] = []
    for first, last in context_ranges(config.max_model_len):
        middle = round((max(first, 1) * last) ** 0.5)
        here = schedule(config, inputs, max_k, middle, emitted)
        if found and (found[-1][2].k == here.k).all():
            found[-1] = (found[-1][0], last, found[-1][2])
        else:
            found.append((first, last, here))
    return found


def context_ranges(max_model_len: int) -> Sequence[tuple[int, int]]:
    """0 to 1023 tokens, then four times as many each, the last up to the longest sequence."""
    edges = [0, *(4**power for power in range(5, 16) if 4**power <= max_model_len), max_model_len + 1]
    return [(first, following - 1) for first, following in pairwise(edges)]
