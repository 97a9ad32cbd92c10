"""From options to a workload: read or sample the lengths, cut the slice, let the requests arrive."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces import formats
from traces.errors import InputError
from traces.files import read_text
from traces.formats.base import MAX_TOKENS
from traces.named import NAMES, NamedTrace, named_trace
from traces.options import TraceOptions, flag, given
from traces.randomness import Stream, generator
from traces.synthetic import RANDOM, random_lengths
from traces.timing import arrive
from traces.workload import Workload

DEFAULT_NUM_PROMPTS = 1000  # of a trace that has no end; vLLM's --num-prompts
MAX_NUM_PROMPTS = 10**8  # some gigabytes of arrays
FILE_ONLY = formats.FORMAT_OPTIONS | {"trace_format", "oversample", "arrival_jitter_s", "vllm_filter"}
RANDOM_ONLY = frozenset({"input_len", "range_ratio"})


def load(options: TraceOptions | str | Path, **fields: object) -> Workload:
    """The workload that the options describe: of a named trace, of `random`, or of a file.

    `load("sharegpt", num_prompts=200)` is short for `load(TraceOptions(trace="sharegpt", num_prompts=200))`.
    A file is read in full, filtered (`vllm_filter`), sorted by arrival, then cut (`skip_requests`, `num_prompts`);
    named and random traces are sampled, so that the first n of a larger sample are the sample of n. How the arrivals
    came about, and everything assumed, is in the workload's `notes`.
    Raises `InputError` for whatever the user can mend, an option that does not apply to the trace included.
    """
    if not isinstance(options, TraceOptions):
        options = TraceOptions(trace=str(options))
    options = replace(options, **fields)  # type: ignore[arg-type]
    _check(options)
    if options.trace == RANDOM:
        _refuse(options, FILE_ONLY, "a trace file", "random is synthetic")
        return _synthetic(options)
    if options.trace in NAMES:
        _refuse(options, RANDOM_ONLY, "the random trace", f"{options.trace} has its own lengths")
        _refuse(options, FILE_ONLY, "a trace file", f"{options.trace} is sampled")
        return _sampled(options, named_trace(options.trace))
    _refuse(options, RANDOM_ONLY, "the random trace", f"{options.trace} has its own lengths")
    return _replayed(options)


def _check(options: TraceOptions) -> None:
    if options.num_prompts is not None and not 1 <= options.num_prompts <= MAX_NUM_PROMPTS:
        raise InputError(f"--num-prompts {options.num_prompts}: expected a whole number from 1 to {MAX_NUM_PROMPTS}")
    if not 0 <= options.skip_requests <= MAX_NUM_PROMPTS:
        raise InputError(
            f"--skip-requests {options.skip_requests}: expected a whole number from 0 to {MAX_NUM_PROMPTS}"
        )
    for field, tokens in (("input_len", options.input_len), ("output_len", options.output_len)):
        if tokens is not None and not 1 <= tokens <= MAX_TOKENS:
            raise InputError(f"{flag(field)} {tokens}: expected a whole number from 1 to {MAX_TOKENS}")
    if options.seed < 0:
        raise InputError(f"--seed {options.seed}: expected a whole number of at least 0")


def _refuse(options: TraceOptions, fields: frozenset[str], owner: str, because: str) -> None:
    for field in sorted(fields & given(options)):
        raise InputError(f"{flag(field)} applies only to {owner}; {because}")


def _synthetic(options: TraceOptions) -> Workload:
    n = options.skip_requests + (options.num_prompts or DEFAULT_NUM_PROMPTS)
    prompt, output, note = random_lengths(n, options.input_len, options.output_len, options.range_ratio, options.seed)
    workload = Workload(RANDOM, "synthetic", np.zeros(n), prompt, output, notes=(note,))
    return arrive(_slice(workload, options.skip_requests, None), options)


def _sampled(options: TraceOptions, trace: NamedTrace) -> Workload:
    n = options.skip_requests + (options.num_prompts or DEFAULT_NUM_PROMPTS)
    prompt, output = trace.sample(n, options.seed)
    workload = Workload(
        trace.name,
        f"sampled from {trace.source} ({trace.licence})",
        np.zeros(n),
        prompt,
        output,
        task=(trace.task,),
        notes=trace.notes,
    )
    return arrive(_override_output(_slice(workload, options.skip_requests, None), options), options, trace)


def _replayed(options: TraceOptions) -> Workload:
    path = Path(options.trace)
    if not os.path.exists(path):  # unlike Path.exists, False for a name too long for the system
        raise InputError(f"no trace {options.trace!r}: neither a file nor one of {', '.join((*NAMES, RANDOM))}")
    rows = formats.read(read_text(path), options)
    notes = list(rows.notes)
    if options.output_len is not None:
        rows.output_tokens = np.full_like(rows.output_tokens, options.output_len)
    if options.vllm_filter:
        rows = rows.take(np.flatnonzero(_passes_vllm_filter(rows.prompt_tokens, rows.output_tokens)))
        notes.append(f"vLLM's ShareGPT filter kept {len(rows.prompt_tokens)} of the requests.")
    n = len(rows.prompt_tokens)
    arrival_s = np.zeros(n) if rows.arrival_s is None else rows.arrival_s
    if (np.diff(arrival_s) < 0).any():
        notes.append("The rows were not in order of time; they are sorted by arrival.")
    if options.arrival_jitter_s is not None:
        arrival_s = _jitter(arrival_s, options, rows.arrival_s is not None)
        notes.append(f"Each arrival is spread uniformly over {options.arrival_jitter_s:g} s.")
    order = np.argsort(arrival_s, kind="stable")
    rows = rows.take(order)
    task, task_id = _tasks(rows)
    workload = Workload(
        path.name,
        f"replayed from {path.name}",
        (arrival_s[order] - arrival_s[order[:1]]) if n else arrival_s,
        rows.prompt_tokens,
        rows.output_tokens,
        has_times=rows.arrival_s is not None,
        task=task,
        task_id=task_id,
        prefix_blocks=rows.prefix_blocks,
        dropped=rows.dropped,
        notes=tuple(notes),
    )
    workload = _slice(workload, options.skip_requests, options.num_prompts)
    if options.num_prompts and len(workload) < options.num_prompts:
        workload = _fill_up(workload, options)
    return arrive(_note_output(workload, options), options)


def _passes_vllm_filter(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (prompt >= 4) & (output >= 4) & (prompt <= 1024) & (prompt + output <= 2048)


def _jitter(arrival_s: NDArray[np.float64], options: TraceOptions, has_times: bool) -> NDArray[np.float64]:
    width = options.arrival_jitter_s or 0.0
    if not 0 < width < float("inf"):
        raise InputError(f"--arrival-jitter-s {width:g}: expected a number of seconds above 0")
    if not has_times:
        raise InputError(f"--arrival-jitter-s applies to the trace's own times; {options.trace} has none")
    return arrival_s + generator(options.seed, Stream.JITTER).uniform(0.0, width, len(arrival_s))


def _tasks(rows: formats.Rows) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    if rows.task is None:
        return ("",), np.zeros(len(rows.prompt_tokens), np.int64)
    names = tuple(dict.fromkeys(rows.task)) or ("",)  # in order of appearance
    index = {name: position for position, name in enumerate(names)}
    return names, np.array([index[name] for name in rows.task], np.int64)


def _slice(workload: Workload, skip: int, count: int | None) -> Workload:
    n = len(workload)
    if skip >= n:
        raise InputError(f"--skip-requests {skip}: the trace holds only {n} requests")
    end = n if count is None else min(n, skip + count)
    return workload if (skip, end) == (0, n) else workload.take(np.arange(skip, end))


def _fill_up(workload: Workload, options: TraceOptions) -> Workload:
    """Too few requests: repeat them one span later, again and again, or go on with what there is; say which."""
    n, wanted = len(workload), options.num_prompts or 0
    if not options.oversample:
        note = f"{wanted} requests asked for, the trace holds {n}; --oversample repeats it."
        return replace(workload, notes=(*workload.notes, note))
    span = float(workload.arrival_s[-1])
    # one mean gap after the last request, so that no two copies meet; a single request has no gap to repeat
    period = span * n / (n - 1) if n > 1 else 0.0
    copies = np.arange(wanted) // n
    repeated = workload.take(np.arange(wanted) % n) if period == 0 else _repeat(workload, wanted, period)
    shared = " Their prefix blocks repeat too." if workload.prefix_blocks else ""
    shifted = f", each copy {period:.6g} s after the one before" if workload.has_times else ""
    note = f"{n} requests repeated {int(copies[-1]) + 1} times to make {wanted}{shifted}.{shared}"
    return replace(repeated, notes=(*workload.notes, note))


def _repeat(workload: Workload, wanted: int, period_s: float) -> Workload:
    rows, copies = np.arange(wanted) % len(workload), np.arange(wanted) // len(workload)
    # lengths first on equal times, then the shifted times: `take` alone would see time run backwards
    still = replace(workload, arrival_s=np.zeros(len(workload))).take(rows)
    return replace(still, arrival_s=workload.arrival_s[rows] + copies * period_s)


def _override_output(workload: Workload, options: TraceOptions) -> Workload:
    if options.output_len is None:
        return workload
    return _note_output(replace(workload, output_tokens=np.full(len(workload), options.output_len)), options)


def _note_output(workload: Workload, options: TraceOptions) -> Workload:
    if options.output_len is None:
        return workload
    return replace(workload, notes=(*workload.notes, f"Every output is set to {options.output_len} tokens."))
