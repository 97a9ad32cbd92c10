"""A result of `vllm bench serve --save-result --save-detailed`: every request of a run, and the steps behind them.

A client sees a chunk when the step that made it ends, and all clients of a step see theirs within a few milliseconds:
the chunks of a run, sorted in time, fall into clusters, one for each step.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.vllm.log import EngineSteps, seconds_of_year
from calibrate.vllm.scrape import Counters
from sim.latency import Timings, timings_of_client
from traces.errors import InputError
from traces.files import read_text
from traces.workload import Workload

LISTS = ("input_lens", "output_lens", "start_times", "ttfts", "latencies", "itls", "errors")
BURST = 0.25
"""Chunks nearer to each other than this share of the median gap of a request belong to one step."""


@dataclass(frozen=True)
class BenchRun:
    """One run. Arrays have an entry for each request that can be compared, in the order they were sent.

    arrival_s        when the load generator had the request ready; with a cap on concurrency it may wait after that
    max_concurrency  that cap, None without
    duration_s       from the first request to the last answer, as the client counts
    timings          what the clients saw
    counters         the server's counters over the run; None without speculation
    written_s        when the result was written, in seconds of the year; None where it does not say
    gaps             requests that cannot be compared, counted, with the reason
    """

    path: str
    model: str
    arrival_s: NDArray[np.float64]
    output_tokens: NDArray[np.int64]
    max_concurrency: int | None
    duration_s: float
    timings: Timings
    counters: Counters | None
    summary: Mapping[str, Any]
    written_s: float | None
    gaps: tuple[str, ...]

    @property
    def name(self) -> str:
        return Path(self.path).name.removesuffix(".gz").removesuffix(".json")

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def chunks(self) -> NDArray[np.int64]:
        """Chunks of each request after its first: decode steps that it took part in."""
        counts: NDArray[np.int64] = np.bincount(self.timings.chunk_request, minlength=len(self)) - 1
        return counts

    @property
    def accepted(self) -> NDArray[np.int64]:
        """Draft tokens of each request that stood: what it got beyond one token a step."""
        return np.asarray(np.maximum(self.output_tokens - 1 - self.chunks, 0))

    def cached_tokens(self, block_size: int) -> NDArray[np.int64]:
        """Prompt tokens that a warm prefix cache holds: whole blocks, all but the last token [C]."""
        cached: NDArray[np.int64] = (self.timings.prompt_tokens - 1) // block_size * block_size
        return cached

    def workload(self, cached: NDArray[np.int64] | None = None) -> Workload:
        """The very requests, each a task of its own so that acceptance can be its own.

        cached  prompt tokens that need no prefill; the replay takes the prompts as that much shorter
        """
        order = np.argsort(self.arrival_s, kind="stable")
        prompt = self.timings.prompt_tokens - (0 if cached is None else cached)
        arrival = self.arrival_s[order]
        return Workload(
            name=self.path,
            origin=f"replayed from {self.path}",
            arrival_s=arrival - arrival[0],
            prompt_tokens=prompt[order].astype(np.int64),
            output_tokens=self.output_tokens[order],
            has_times=True,
            task=tuple(map(str, range(len(self)))),
            task_id=order.astype(np.int64),
        )

    def steps(self, cached: NDArray[np.int64] | None = None) -> EngineSteps:
        """The engine steps of a run without speculation, from when chunks came; seconds include the host between steps.

        Assumes that a prompt is prefilled in one step, which ends with its first chunk. Steps whose chunks came late,
        together with others, are left out.
        """
        t = self.timings
        prompt = t.prompt_tokens - (0 if cached is None else cached)
        order = np.argsort(t.chunk_s, kind="stable")
        chunk_s, request, first = t.chunk_s[order], t.chunk_request[order], ~t.follows[order]
        place = (np.arange(len(order)) - np.searchsorted(t.chunk_request, t.chunk_request))[order]
        gaps = t.gap_s[t.follows]
        new = np.diff(chunk_s, prepend=-np.inf) > BURST * float(np.median(gaps))
        step = np.cumsum(new) - 1
        end_s = chunk_s[new]
        begin_s = np.concatenate([[float(t.start_s.min())], end_s[:-1]])
        # nobody in flight when the step before ended: when this one began is not known
        started, ended = (np.sort(times).searchsorted(begin_s + 1e-9) for times in (t.start_s, t.start_s + t.e2el_s))
        busy = started > ended
        # several chunks of a request at once: the client was held up, and when those steps ended is lost
        places = np.unique(step * len(self) + request, return_counts=True)
        late = np.zeros(len(end_s) + 1, np.bool_)
        late[places[0][places[1] > 1] // len(self)] = True
        late[1:] |= late[:-1].copy()
        count = len(end_s)
        return EngineSteps(
            contexts=np.bincount(step[first], minlength=count).astype(np.float64),
            context_tokens=np.bincount(step[first], prompt[request[first]], count).astype(np.float64),
            generations=np.bincount(step[~first], minlength=count).astype(np.float64),
            generation_tokens=np.bincount(step[~first], minlength=count).astype(np.float64),
            seconds=end_s - begin_s,
            kv_tokens=np.bincount(step, prompt[request] + place, count).astype(np.float64),
        ).take(busy & ~late[:-1])


def read_bench(path: Path) -> BenchRun:
    """Read a result. Raises InputError if no request of it can be compared, naming why."""
    try:
        result = json.loads(read_text(path).text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(result, dict) or "completed" not in result:
        raise InputError(f"{path}: no result of vllm bench serve: expected a JSON object with `completed`")
    if not result["completed"]:
        raise InputError(f"{path}: completed 0 of {result.get('num_prompts', '?')} requests: the server was not there")
    missing = [name for name in LISTS if not isinstance(result.get(name), list)]
    if missing:
        raise InputError(f"{path}: no {', '.join(missing)}: run vllm bench serve with --save-detailed")
    lengths = {name: len(result[name]) for name in LISTS}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{path}: the lists differ in length: {lengths}")
    try:
        return _run(path, result)
    except InputError:
        raise
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not as vllm bench serve writes it: {type(error).__name__}: {error}") from None


def _run(path: Path, result: Mapping[str, Any]) -> BenchRun:
    failed = np.array([bool(error) for error in result["errors"]])
    output = np.array(result["output_lens"], np.int64)
    empty = ~failed & (output < 1)
    kept = np.flatnonzero(~failed & ~empty)
    gaps = []
    if failed.any():
        gaps.append(f"{path}: {failed.sum()} of {len(failed)} requests failed: not compared, though they made load")
    if empty.any():
        gaps.append(f"{path}: {empty.sum()} of {len(failed)} requests have no output tokens: not compared")
    if not len(kept):
        raise InputError(f"{path}: none of {len(failed)} requests can be compared: {'; '.join(gaps)}")
    columns = {name: [result[name][i] for i in kept] for name in LISTS}
    arrival, note = _arrivals(result, np.array(columns["start_times"], np.float64), kept)
    gaps += [f"{path}: {note}"] * bool(note)
    return BenchRun(
        path=str(path),
        model=str(result.get("model_id", "unknown")),
        arrival_s=arrival,
        output_tokens=output[kept],
        max_concurrency=result.get("max_concurrency"),
        duration_s=float(result["duration"]),
        timings=timings_of_client(
            [True] * len(kept),
            columns["input_lens"],
            columns["output_lens"],
            columns["start_times"],
            columns["ttfts"],
            columns["latencies"],
            columns["itls"],
        ),
        counters=_counters(result),
        summary=result,
        written_s=_written(result.get("date")),
        gaps=tuple(gaps),
    )


def _written(date: Any) -> float | None:
    """`20261130-191647` in seconds of the year."""
    try:
        return seconds_of_year(datetime.datetime.strptime(str(date), "%Y%m%d-%H%M%S"))
    except ValueError:
        return None


def _arrivals(
    result: Mapping[str, Any], start_s: NDArray[np.float64], kept: NDArray[np.int64]
) -> tuple[NDArray[np.float64], str]:
    """When the load generator had each request ready, and a note where that had to be assumed."""
    waited, cap = result.get("queue_times"), result.get("max_concurrency")
    if isinstance(waited, list) and len(waited) == len(result["errors"]):
        return start_s - np.array([waited[i] for i in kept], np.float64), ""
    if not cap:
        return start_s, ""
    if str(result.get("request_rate")) == "inf":  # all were ready by when the cap was first reached
        return np.minimum(start_s, np.sort(start_s)[min(cap, len(start_s)) - 1]), ""
    return start_s, "no queue_times: requests are replayed when they were sent, not when they were ready"


def _counters(result: Mapping[str, Any]) -> Counters | None:
    drafts = result.get("spec_decode_num_drafts")
    if not drafts:
        return None
    rates = result.get("spec_decode_per_position_acceptance_rates") or []
    return Counters(
        drafts=int(drafts),
        draft_tokens=int(result.get("spec_decode_draft_tokens") or 0),
        accepted=int(result.get("spec_decode_accepted_tokens") or 0),
        accepted_at=tuple(round(rate * drafts) for rate in rates),
    )
