"""From options to a workload: read or sample the lengths, cut the slice, decide the arrivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces import formats
from traces.arrivals import DrawnRate, OwnTimes, draw_arrivals, draw_ramp_up, parse_request_rate
from traces.errors import InputError
from traces.files import read_text
from traces.named import NAMES, NamedTrace, named_trace
from traces.options import TraceOptions, flag, given
from traces.randomness import Stream, generator
from traces.synthetic import RANDOM, random_lengths
from traces.workload import Workload

DEFAULT_NUM_PROMPTS = 1000  # of a trace that has no end; vLLM's --num-prompts
RATE_OPTIONS = frozenset({"request_rate", "burstiness", "ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"})
ANY_TRACE = RATE_OPTIONS | {"trace", "num_prompts", "skip_requests", "seed", "output_len"}
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
    if options.num_prompts is not None and options.num_prompts < 1:
        raise InputError(f"--num-prompts {options.num_prompts}: expected a whole number of at least 1")
    if options.skip_requests < 0:
        raise InputError(f"--skip-requests {options.skip_requests}: expected a whole number of at least 0")
    if options.output_len is not None and options.output_len < 1:
        raise InputError(f"--output-len {options.output_len}: expected a whole number of at least 1")
    if options.seed < 0:
        raise InputError(f"--seed {options.seed}: expected a whole number of at least 0")


def _refuse(options: TraceOptions, fields: frozenset[str], owner: str, because: str) -> None:
    for field in sorted(fields & given(options)):
        raise InputError(f"{flag(field)} applies only to {owner}; {because}")


def _synthetic(options: TraceOptions) -> Workload:
    n = options.skip_requests + (options.num_prompts or DEFAULT_NUM_PROMPTS)
    prompt, output, note = random_lengths(n, options.input_len, options.output_len, options.range_ratio, options.seed)
    workload = Workload(RANDOM, "synthetic", np.zeros(n), prompt, output, notes=(note,))
    return _arrive(_slice(workload, options.skip_requests, None), options)


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
    return _arrive(_override_output(_slice(workload, options.skip_requests, None), options), options, trace)


def _replayed(options: TraceOptions) -> Workload:
    path = Path(options.trace)
    if not path.exists():
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
    return _arrive(_note_output(workload, options), options)


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


def _arrive(workload: Workload, options: TraceOptions, trace: NamedTrace | None = None) -> Workload:
    """The workload with its arrivals, and a first note that says where they come from."""
    n, seed = len(workload), options.seed
    burstiness = 1.0 if options.burstiness is None else options.burstiness
    if options.ramp_up_strategy is not None:
        return _ramp_up(workload, options, burstiness)
    for field in ("ramp_up_start_rps", "ramp_up_end_rps"):
        if getattr(options, field) is not None:
            raise InputError(f"{flag(field)} needs --ramp-up-strategy linear or exponential")

    modelled = trace.arrivals if trace else None
    rate = _rate(workload, options, trace)
    if isinstance(rate, OwnTimes) and modelled:
        shape = modelled.gamma_shape if options.burstiness is None else burstiness
        rps = modelled.rate_rps * rate.density
        note = f"Arrivals modelled: gamma gaps of shape {shape:g} at {rps:.4g} requests/s; {modelled.note}."
        return _timed(workload, draw_arrivals(n, rps, shape, seed), note, has_times=False)
    if isinstance(rate, OwnTimes):
        if options.burstiness is not None:
            raise InputError("--burstiness applies to drawn arrivals; with the trace's own times give --request-rate R")
        density = "" if rate.density == 1 else f", {rate.density:g} times as dense"
        note = f"Arrivals at the trace's own times{density}."
        return _timed(workload, workload.arrival_s / rate.density, note, has_times=True)
    times = draw_arrivals(n, rate.rate_rps, burstiness, seed)
    if rate.rate_rps == float("inf"):
        if options.burstiness is not None:
            raise InputError("--burstiness applies to a finite --request-rate; here all requests arrive at once")
        note = "All requests arrive at once."
        if options.request_rate is None:
            note = "All requests arrive at once, as in vllm bench serve without --request-rate: the trace has no times."
        return _timed(workload, times, note, has_times=False)
    kind = "Poisson" if burstiness == 1 else f"gamma of burstiness {burstiness:g}"
    origin = "" if options.request_rate else ", this trace's default rate"
    return _timed(workload, times, f"Arrivals drawn: {kind} at {rate.rate_rps:g} requests/s{origin}.", has_times=False)


def _rate(workload: Workload, options: TraceOptions, trace: NamedTrace | None) -> OwnTimes | DrawnRate:
    has_own = workload.has_times or (trace is not None and trace.arrivals is not None)
    if options.request_rate is None:
        if has_own:
            return OwnTimes()
        return DrawnRate(trace.default_rate_rps if trace else float("inf"))
    rate = parse_request_rate(options.request_rate)
    if isinstance(rate, OwnTimes) and not has_own:
        raise InputError(f"--request-rate {options.request_rate}: {workload.name} has no times of its own; give a rate")
    if isinstance(rate, DrawnRate) and options.arrival_jitter_s is not None:
        raise InputError(
            f"--arrival-jitter-s applies to the trace's own times, not with --request-rate {rate.rate_rps:g}"
        )
    return rate


def _ramp_up(workload: Workload, options: TraceOptions, burstiness: float) -> Workload:
    start, end = options.ramp_up_start_rps, options.ramp_up_end_rps
    strategy = options.ramp_up_strategy
    if strategy is None or start is None or end is None:
        raise InputError("--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps")
    if options.request_rate is not None:
        raise InputError("--ramp-up-strategy sets the rate itself; leave --request-rate out")
    if options.arrival_jitter_s is not None:
        raise InputError("--arrival-jitter-s applies to the trace's own times, not with --ramp-up-strategy")
    times = draw_ramp_up(len(workload), strategy, start, end, burstiness, options.seed)
    note = f"Arrivals drawn: {strategy} ramp-up from {start:g} to {end:g} requests/s, burstiness {burstiness:g}."
    return _timed(workload, times, note, has_times=False)


def _timed(workload: Workload, arrival_s: NDArray[np.float64], note: str, has_times: bool) -> Workload:
    return replace(workload, arrival_s=arrival_s, has_times=has_times, notes=(note, *workload.notes))
