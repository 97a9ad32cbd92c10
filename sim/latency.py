"""TTFT, TPOT, ITL, E2EL, throughput and goodput, as `vllm bench serve` defines them (vLLM 0.32, confidence A).

A client sees chunks: each engine step that emits for a request sends one, of one or more tokens. Everything here
follows from when the chunks came.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.control.log import FINISHED, REJECTED, EventLog
from traces.errors import InputError
from traces.workload import Workload

SLO_NAMES = ("ttft", "tpot", "e2el")

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Timings:
    """What the clients of a server saw. n requests, m chunks; times in seconds on one clock.

    success, failed  [n] finished; rejected or broken off. Neither: still in flight when the clock stopped
    prompt_tokens    [n]
    start_s          [n] when the request was sent
    ttft_s, e2el_s   [n] from the start to the first token and to the end; NaN where that never came
    chunk_request    [m] index of the request, ascending; within a request the chunks are in time order
    chunk_s          [m] when the chunk arrived
    chunk_tokens     [m] tokens in it
    """

    success: Mask
    failed: Mask
    prompt_tokens: Ints
    start_s: Floats
    ttft_s: Floats
    e2el_s: Floats
    chunk_request: Ints
    chunk_s: Floats
    chunk_tokens: Ints

    @cached_property
    def output_tokens(self) -> Ints:
        """[n] tokens generated, not tokens asked for (F12)."""
        counts = np.bincount(self.chunk_request, weights=self.chunk_tokens, minlength=len(self.success))
        return counts.astype(np.int64)

    @cached_property
    def tpot_s(self) -> Floats:
        """[n] (E2EL - TTFT) / (tokens - 1); NaN for one token, where it is undefined (F1)."""
        tokens = self.output_tokens
        return np.where(tokens > 1, (self.e2el_s - self.ttft_s) / np.maximum(tokens - 1, 1), np.nan)

    @cached_property
    def follows(self) -> Mask:
        """[m] whether the chunk follows another of the same request, so that a gap ends with it."""
        request = self.chunk_request
        return np.concatenate([np.zeros(min(len(request), 1), np.bool_), request[1:] == request[:-1]])

    @cached_property
    def gap_s(self) -> Floats:
        """[m] since the chunk before; meaningless where not `follows`."""
        return np.diff(self.chunk_s, prepend=self.chunk_s[:1])


def timings_of(log: EventLog, workload: Workload, step_end_s: Floats | None = None) -> Timings:
    """The clients' view of a run. A token reaches its client when the step that made it ends."""
    if step_end_s is None:
        step_end_s = log.step_columns()["end_s"]
    requests, n = log.requests, len(log.requests)
    order = np.argsort(log.emissions["request"], kind="stable")
    chunk_request = log.emissions["request"][order]
    chunk_s = step_end_s[log.emissions["step"][order]]
    first_s = np.full(n, np.nan)
    begins = np.flatnonzero(np.diff(chunk_request, prepend=-1))
    first_s[chunk_request[begins]] = chunk_s[begins]
    return Timings(
        success=requests.status == FINISHED,
        failed=requests.status == REJECTED,
        prompt_tokens=workload.prompt_tokens,
        start_s=requests.arrival_s,
        ttft_s=first_s - requests.arrival_s,
        e2el_s=requests.finish_s - requests.arrival_s,
        chunk_request=chunk_request,
        chunk_s=chunk_s,
        chunk_tokens=log.emissions["tokens"][order],
    )


def timings_of_client(
    success: Sequence[bool],
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    start_s: Sequence[float],
    ttft_s: Sequence[float],
    latency_s: Sequence[float],
    itl_s: Sequence[Sequence[float]],
) -> Timings:
    """The columns that vLLM's client records (`--save-detailed`), one entry per request.

    That client knows how many tokens came in all, not how many in each chunk, so the first chunk is booked with all of
    them. A request that succeeded without a count has one token, as in vLLM.
    """
    n = len(success)
    chunks = [np.cumsum([start_s[i] + ttft_s[i], *itl_s[i]]) for i in range(n)]
    lengths = np.array([len(chunk) for chunk in chunks], np.int64)
    chunk_request = np.repeat(np.arange(n), lengths)
    chunk_tokens = np.zeros(len(chunk_request), np.int64)
    chunk_tokens[np.cumsum(lengths) - lengths] = np.maximum(np.asarray(output_tokens, np.int64), 1)
    succeeded = np.asarray(success, np.bool_)
    return Timings(
        success=succeeded,
        failed=~succeeded,
        prompt_tokens=np.asarray(prompt_tokens, np.int64),
        start_s=np.asarray(start_s, np.float64),
        ttft_s=np.asarray(ttft_s, np.float64),
        e2el_s=np.asarray(latency_s, np.float64),
        chunk_request=chunk_request,
        chunk_s=np.concatenate(chunks) if chunks else np.zeros(0),
        chunk_tokens=chunk_tokens,
    )


def parse_goodput(words: Sequence[str]) -> dict[str, float]:
    """`["ttft:500", "tpot:50"]` -> {"ttft": 500.0, "tpot": 50.0}, milliseconds. The last of a repeated name counts.

    Raises InputError for an unknown name, a missing or unreadable number, and a negative one.
    """
    slo: dict[str, float] = {}
    for word in words:
        name, colon, text = word.partition(":")
        if name not in SLO_NAMES:
            raise InputError(f"--goodput {word!r}: unknown SLO {name!r}; one of {', '.join(SLO_NAMES)}, as in ttft:500")
        try:
            limit_ms = float(text)
        except ValueError:
            problem = f"{text!r} is not a number" if colon else "the limit is missing"
            raise InputError(f"--goodput {word!r}: {problem}; write milliseconds, as in {name}:500") from None
        if not (math.isfinite(limit_ms) and limit_ms >= 0):
            raise InputError(f"--goodput {word!r}: a limit in milliseconds is finite and not negative")
        slo[name] = limit_ms
    return slo


def slo_met(timings: Timings, slo: Mapping[str, float]) -> Mask:
    """[n] whether a request finished and kept every limit of `slo` (name -> milliseconds, met exactly is met).

    A request of one token has no TPOT: it is judged on the other limits only (F11), as vLLM does by counting its TPOT
    as 0. Without any known limit there is nothing to meet and no request counts.
    """
    values = {
        "ttft": timings.ttft_s,
        "tpot": np.where(timings.output_tokens > 1, timings.tpot_s, 0.0),
        "e2el": timings.e2el_s,
    }
    limits = [(values[name], slo[name] / 1000) for name in SLO_NAMES if name in slo]
    met = timings.success & bool(limits)
    for value_s, limit_s in limits:
        met = met & (value_s <= limit_s)
    return met


def distribution(name: str, sample_s: Floats, percentiles: Sequence[float]) -> dict[str, float | None]:
    """mean, median, std (of the population) and percentiles (linear) of a sample, in ms; None where it is empty."""
    keys = [f"{what}_{name}_ms" for what in ("mean", "median", "std", *(f"p{p:g}" for p in percentiles))]
    if len(sample_s) == 0:
        return dict.fromkeys(keys)
    values = [np.mean(sample_s), np.median(sample_s), np.std(sample_s), *np.percentile(sample_s, list(percentiles))]
    return {key: float(value) * 1000 for key, value in zip(keys, values, strict=True)}


def rate(count: float, duration_s: float) -> float | None:
    """Per second; undefined where no time passed."""
    return count / duration_s if duration_s > 0 else None


def bench_metrics(
    timings: Timings,
    duration_s: float,
    *,
    slo: Mapping[str, float] | None = None,
    percentiles: Sequence[float] = (50, 90, 99),
    since_s: float = -math.inf,
) -> dict[str, Any]:
    """The figures of `vllm bench serve` under its key names. Samples and sums are over requests that succeeded.

    After a warm-up (`since_s`, F8) only what happened later counts: tokens and ITL by when the chunk came, TTFT and
    prompt tokens by the first token, completions, TPOT and E2EL by the finish, failures by the arrival; `duration_s` is
    then the length of the window.
    max_output_tokens_per_s counts chunks, as vLLM does; peak_output_tokens_per_s counts tokens.

    vLLM reports 0 for the statistics of an empty sample and for a goodput nobody asked for; here they are None (F1).
    """
    first_s, finish_s = timings.start_s + timings.ttft_s, timings.start_s + timings.e2el_s
    started = timings.success & (first_s > since_s)
    finished = timings.success & (finish_s > since_s)
    chunks = timings.success[timings.chunk_request] & (timings.chunk_s > since_s)
    completed = int(finished.sum())
    total_input = int(timings.prompt_tokens[started].sum())
    total_output = int(timings.chunk_tokens[chunks].sum())
    metrics: dict[str, Any] = {
        "duration": duration_s,
        "completed": completed,
        "failed": int((timings.failed & (timings.start_s > since_s)).sum()),
        "total_input_tokens": total_input,
        "total_output_tokens": total_output,
        "request_throughput": rate(completed, duration_s),
        "request_goodput": rate(int((slo_met(timings, slo) & finished).sum()), duration_s) if slo else None,
        "output_throughput": rate(total_output, duration_s),
        "total_token_throughput": rate(total_input + total_output, duration_s),
    }
    metrics |= distribution("ttft", timings.ttft_s[started], percentiles)
    metrics |= distribution("tpot", timings.tpot_s[finished & (timings.output_tokens > 1)], percentiles)
    metrics |= distribution("itl", timings.gap_s[chunks & timings.follows], percentiles)
    metrics |= distribution("e2el", timings.e2el_s[finished], percentiles)
    return metrics | _peaks(timings, finished, chunks, since_s)


def _peaks(timings: Timings, finished: Mask, chunks: Mask, since_s: float) -> dict[str, Any]:
    """The busiest whole second, counted from the first start; a request counts in every second that it touches."""
    if not finished.any():
        return {"max_output_tokens_per_s": 0.0, "max_concurrent_requests": 0, "peak_output_tokens_per_s": 0.0}
    origin_s = max(float(timings.start_s[finished].min()), since_s)
    start_s = np.maximum(timings.start_s[finished], origin_s)
    start = (start_s - origin_s).astype(np.int64)
    end = (timings.start_s[finished] + timings.e2el_s[finished] - origin_s).astype(np.int64)
    chunk = (timings.chunk_s[chunks] - origin_s).astype(np.int64)
    # by sorting, not by a table of seconds: a run may last longer than memory has bytes
    begun, over = np.arange(1, len(start) + 1), np.searchsorted(np.sort(end), np.sort(start))
    _, second = np.unique(chunk, return_inverse=True)
    return {
        "max_output_tokens_per_s": float(np.bincount(second).max(initial=0)),
        "max_concurrent_requests": int((begun - over).max()),
        "peak_output_tokens_per_s": float(np.bincount(second, timings.chunk_tokens[chunks]).max(initial=0)),
    }
