"""Which arrivals a workload gets: its own times, a modelled process, a drawn rate, a ramp-up, or all at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from traces.arrivals import DrawnRate, OwnTimes, draw_arrivals, draw_ramp_up, parse_request_rate
from traces.errors import InputError
from traces.named import ModelledArrivals, NamedTrace
from traces.options import TraceOptions, flag
from traces.workload import Workload


def arrive(workload: Workload, options: TraceOptions, trace: NamedTrace | None = None) -> Workload:
    """The workload with its arrivals, and a first note that says where they come from."""
    burstiness = 1.0 if options.burstiness is None else options.burstiness
    if options.ramp_up_strategy is not None:
        return _ramp_up(workload, options, burstiness)
    for field in ("ramp_up_start_rps", "ramp_up_end_rps"):
        if getattr(options, field) is not None:
            raise InputError(f"{flag(field)} needs --ramp-up-strategy linear or exponential")

    rate = _rate(workload, options, trace)
    if isinstance(rate, DrawnRate):
        return _drawn(workload, options, rate.rate_rps, burstiness)
    if trace is not None and trace.arrivals is not None:
        return _modelled(workload, options, trace.arrivals, rate.density)
    return _own_times(workload, options, rate.density)


def _own_times(workload: Workload, options: TraceOptions, density: float) -> Workload:
    if options.burstiness is not None:
        raise InputError("--burstiness applies to drawn arrivals; with the trace's own times give --request-rate R")
    if not float(workload.arrival_s[-1]) / density < float("inf"):
        raise InputError(f"--request-rate {options.request_rate}: so thin that the times overflow")
    scaled = "" if density == 1 else f", {density:g} times as dense"
    return _timed(workload, workload.arrival_s / density, f"Arrivals at the trace's own times{scaled}.", has_times=True)


def _modelled(workload: Workload, options: TraceOptions, model: ModelledArrivals, density: float) -> Workload:
    shape = model.gamma_shape if options.burstiness is None else options.burstiness
    rate_rps = model.rate_rps * density
    note = f"Arrivals modelled: gamma gaps of shape {shape:g} at {rate_rps:.4g} requests/s; {model.note}."
    return _timed(workload, draw_arrivals(len(workload), rate_rps, shape, options.seed), note, has_times=False)


def _drawn(workload: Workload, options: TraceOptions, rate_rps: float, burstiness: float) -> Workload:
    times = draw_arrivals(len(workload), rate_rps, burstiness, options.seed)
    if rate_rps == float("inf"):
        if options.burstiness is not None:
            raise InputError("--burstiness applies to a finite --request-rate; here all requests arrive at once")
        why = "" if options.request_rate else ", as in vllm bench serve without --request-rate: the trace has no times"
        return _timed(workload, times, f"All requests arrive at once{why}.", has_times=False)
    kind = "Poisson" if burstiness == 1 else f"gamma of burstiness {burstiness:g}"
    origin = "" if options.request_rate else ", this trace's default rate"
    return _timed(workload, times, f"Arrivals drawn: {kind} at {rate_rps:g} requests/s{origin}.", has_times=False)


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
