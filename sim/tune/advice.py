"""From settings to advice: the schedule, what simulation says of it beside other policies, capacity, and yes or no."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sim.config import SimConfig
from sim.intervals import mean_interval, ratio_interval
from sim.policies import policies as registry
from sim.replay.drafting import with_draft_kind
from sim.replay.profile import Profile
from sim.simulate import Inputs, load_inputs
from sim.tune import capacity, engines
from sim.tune.schedule import Schedule, by_context, schedule
from traces.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

NONE = "none"
HIGHER_IS_BETTER = frozenset({"output_throughput", "request_goodput"})
NOT_DEPLOYABLE = frozenset({"oracle", "specdec++", "batch-table", "fixed", NONE})
"""They know the future, need a table, or stand beside the others anyway."""


@dataclass(frozen=True)
class Gain:
    """How much better than another, as a ratio of the objective with its 95 % interval over paired seeds."""

    ratio: float
    low: float
    high: float
    seeds: int

    @property
    def verdict(self) -> str:
        """yes, or no: the same, worse, or within noise. One seed decides nothing."""
        if self.low > 1:
            return "yes"
        if self.ratio == self.low == self.high == 1:
            return "no, it is the same"
        return "no, it is worse" if self.high < 1 else "no, within noise"

    def __str__(self) -> str:
        interval = f"95 % {self.low:.3f} to {self.high:.3f}" if self.low == self.low else "one seed, no interval"
        return f"{self.ratio:.3f}x ({interval})"


@dataclass(frozen=True)
class Advice:
    """What to deploy, and why.

    frame        every run, as of a sweep
    objective    the metric that decides, `policy` the spec that simulates the schedule
    best_k       spec of the best constant K; best: of the best policy of all that an engine could run
    over_none, over_fixed, best_over_none   gains of the schedule over plain decoding and over the best K; of `best`
    capacity     policy -> mean highest rate within the SLO and its interval; empty without an SLO
    capacity_gain  of the schedule over plain decoding; None without an SLO
    """

    config: SimConfig
    engine: engines.Engine
    profile: Profile
    schedule: Schedule
    contexts: Sequence[tuple[int, int, Schedule]]
    frame: DataFrame
    objective: str
    policy: str
    best_k: str
    best: str
    over_none: Gain
    over_fixed: Gain
    best_over_none: Gain
    capacity: dict[str, tuple[float, float, float]]
    capacity_gain: Gain | None


def advise(
    config: SimConfig,
    run: capacity.Run,
    *,
    engine: engines.Engine = "vllm",
    max_k: int = 7,
    seeds: int = 5,
    objective: str | None = None,
    others: Sequence[str] | None = None,
    attainment: float = 0.9,
    context_axis: bool = False,
    inputs: Inputs | None = None,
) -> Advice:
    """Work out the schedule and check it by simulation. Raises InputError.

    run        simulates configurations and returns their frame: `sim.sweep.sweep` with a directory
    objective  metric to improve; default: mean TPOT, or output throughput where requests do not arrive by the clock
    others     policies to hold it against; default: every lossless one of the registry
    attainment share of requests that must meet the SLO at capacity
    """
    if seeds < 1:
        raise InputError(f"--seeds {seeds}: expected a whole number of at least 1")
    if not 0 < attainment <= 1:
        raise InputError(f"--slo-attainment {attainment:g}: expected a share above 0, at most 1")
    inputs = inputs or load_inputs(config)
    config = _with_rate(config, inputs)
    profile = with_draft_kind(inputs.profile, config.draft_kind)
    found = schedule(config, inputs, max_k)
    contexts = by_context(config, inputs, max_k, found.emitted) if context_axis else []
    policy = engines.policy_of(engine, found.rows, profile)
    if engine == "vllm":
        engines.check_vllm(engines.vllm_config(found.rows, profile), config.max_num_seqs)

    objective = objective or ("mean_tpot_ms" if _open_loop(config) else "output_throughput")
    if others is None:
        others = [name for name in registry if registry[name].lossless and name not in NOT_DEPLOYABLE]
    constant = [f"fixed:k={k}" for k in range(1, len(found.emitted))]
    every_seed = range(config.seed, config.seed + seeds)
    specs = list(dict.fromkeys([NONE, policy, *constant, *others]))
    frame = run([replace(config, policy=spec, seed=seed) for spec in specs for seed in every_seed])
    scores = {spec: _values(frame, spec, objective) for spec in specs}
    usable = {spec: values for spec, values in scores.items() if all(math.isfinite(value) for value in values)}
    for spec in (NONE, policy):
        if spec not in usable:
            raise InputError(f"{spec}: {_why(frame, spec, objective)}")
    best_k = _best([spec for spec in constant if spec in usable], usable, objective)
    best = _best(list(usable), usable, objective)

    def gain(spec: str, base: str) -> Gain:
        return Gain(*_better(usable[spec], usable[base], objective), seeds)

    limits, ratio = _capacity(config, [NONE, policy], every_seed, attainment, run) if config.goodput else ({}, None)
    return Advice(
        config,
        engine,
        profile,
        found,
        contexts,
        frame,
        objective,
        policy,
        best_k,
        best,
        gain(policy, NONE),
        gain(policy, best_k),
        gain(best, NONE),
        limits,
        ratio,
    )


def _with_rate(config: SimConfig, inputs: Inputs) -> SimConfig:
    """The settings with the rate written out that the workload has by itself."""
    if config.request_rate is not None:
        return config
    rate = inputs.workload.offered_rate_rps
    return replace(config, request_rate="trace" if inputs.workload.has_times else f"{rate:.4g}")


def _open_loop(config: SimConfig) -> bool:
    return config.max_concurrency is None and config.request_rate != "inf"


def _values(frame: DataFrame, spec: str, metric: str) -> list[float]:
    rows = frame[frame["policy"] == spec].sort_values("seed")
    return rows[metric].tolist() if metric in frame else [math.nan] * len(rows)


def _why(frame: DataFrame, spec: str, metric: str) -> str:
    errors = frame.loc[frame["policy"] == spec, "error"].dropna()
    return str(errors.iloc[0]) if len(errors) else f"{metric} is undefined: nothing was completed"


def _better(values: Sequence[float], base: Sequence[float], objective: str) -> tuple[float, float, float]:
    """Ratio above 1 where `values` are better."""
    return ratio_interval(values, base) if objective in HIGHER_IS_BETTER else ratio_interval(base, values)


def _best(specs: Sequence[str], scores: dict[str, list[float]], objective: str) -> str:
    """By the geometric mean over seeds; the first of equals."""
    if not specs:
        raise InputError(f"no constant K could be simulated: {objective} is undefined")
    return max(specs, key=lambda spec: _better(scores[spec], scores[NONE], objective)[0])


def _capacity(
    config: SimConfig, specs: Sequence[str], seeds: Sequence[int], attainment: float, run: capacity.Run
) -> tuple[dict[str, tuple[float, float, float]], Gain]:
    if not _open_loop(config):
        raise InputError("--goodput: capacity is a request rate; requests must arrive by the clock for it")
    found = capacity.capacities(config, specs, seeds, attainment, run)
    rates: dict[str, list[float]] = {spec: [found[spec, seed] for seed in seeds] for spec in specs}
    none, policy = (rates[spec] for spec in specs)
    finite = all(math.isfinite(rate) for each in rates.values() for rate in each)
    ratio = ratio_interval(policy, none) if finite else (math.nan,) * 3
    return {spec: mean_interval(rates[spec]) for spec in specs}, Gain(*ratio, len(seeds))


def as_dict(advice: Advice) -> dict[str, Any]:
    """What --json prints."""
    from sim.config import settings
    from sim.results import plain

    rows, profile = advice.schedule.rows, advice.profile
    deployed: dict[str, Any]
    if advice.engine == "vllm":
        deployed = {"speculative_config": engines.vllm_config(rows, profile)}
        if advice.contexts:
            axis = engines.with_context_axis(deployed["speculative_config"], advice.contexts)
            deployed["speculative_config_with_context_axis"] = axis
    else:
        deployed = {
            "arguments": engines.sglang_arguments(rows, profile),
            "adaptive_config": engines.sglang_config(rows),
        }
    gains = {
        "schedule_over_none": advice.over_none,
        "schedule_over_best_fixed": advice.over_fixed,
        "best_policy_over_none": advice.best_over_none,
        "capacity_over_none": advice.capacity_gain,
    }
    names = {advice.policy: "schedule"}
    content: dict[str, Any] = {
        "deploy": advice.over_none.verdict == "yes",
        "engine": advice.engine,
        **deployed,
        "objective": advice.objective,
        "seeds": advice.over_none.seeds,
        "gains": {
            name: None
            if gain is None
            else {"ratio": gain.ratio, "low": gain.low, "high": gain.high, "is": gain.verdict}
            for name, gain in gains.items()
        },
        "best_fixed": advice.best_k,
        "best_policy": names.get(advice.best, advice.best),
        "crossover_batch": advice.schedule.crossover(),
        "crossover_batch_of_best_fixed": advice.schedule.crossover(int(advice.best_k.partition("=")[2])),
        "capacity": {
            names.get(spec, spec): {"mean": mean, "low": low, "high": high}
            for spec, (mean, low, high) in advice.capacity.items()
        },
        "emitted_per_step": advice.schedule.emitted,
        "context_tokens": advice.schedule.context_tokens,
        "config": {name: value for name, value in settings(advice.config).items() if name not in ("policy", "cap")},
    }
    return dict(plain(content))
