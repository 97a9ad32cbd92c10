"""python -m calibrate.validate_vllm RESULT... --profile DIR: a vLLM's own bench runs against their simulation.

With --leave-one-out each run is simulated with costs from all the other files: its own steps, in its result and in the
log, are left out of the fit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from calibrate.vllm import acceptance, costs
from calibrate.vllm.__main__ import read
from calibrate.vllm.bench import BenchRun
from calibrate.vllm.log import ServerLog
from calibrate.vllm.profile import Told, build
from calibrate.vllm.replay import Comparison, replay
from sim.control.scheduler import SchedulerConfig
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source, iid
from sim.replay.windows import Windows
from traces.command import parse
from traces.errors import InputError, run_command
from traces.files import write_text

DESCRIPTION = (
    "Replay the very requests of `vllm bench serve` runs (--save-result --save-detailed) and print live against "
    "simulated, for every metric and for each request."
)
HEADLINE = ("duration", "mean_tpot_ms", "p90_tpot_ms", "mean_ttft_ms", "mean_e2el_ms")


@dataclass(frozen=True)
class Command:
    """Which runs, and what is known of their server. Runs of servers set up differently need calls of their own."""

    vllm: tuple[Path, ...] = ()
    """Results to validate."""

    warm: tuple[Path, ...] = ()
    """Results, like --vllm, of runs whose prompts were all in a warm prefix cache."""

    profile: str | None = None
    """Costs: a directory of python -m calibrate.vllm, or a name. Or give --leave-one-out."""

    leave_one_out: bool = False
    """Fit the costs for each run anew from --log and all other results."""

    log: tuple[Path, ...] = ()
    """Logs for --leave-one-out."""

    metrics: tuple[Path, ...] = ()
    """Scrapes of /metrics for --leave-one-out; they also tell the block size that --warm needs."""

    draft_kind: Literal["autoregressive", "ngram"] = "autoregressive"
    """How the server drafts in these runs: a model, or a look-up."""

    policy: str | None = None
    """Policy of the runs that speculate, e.g. fixed:k=3 or batch-table:table=[[1,4,4],[5,16,2]]. Default: fixed, with
    the k of its counters."""

    acceptance: str = "own"
    """Of runs that speculate: `own`, steps and accepted tokens of each request from its result, or a source of sim."""

    max_num_seqs: int = 256
    """As the server was started."""

    max_num_batched_tokens: int = 8192
    """As the server was started."""

    seed: int = 0
    """Of what acceptance leaves open."""

    json: Path | None = None
    """Write all figures there too."""


def run(command: Command) -> int:
    """Validate each run, print its table, and a summary of all. Raises InputError."""
    if not (command.vllm or command.warm):
        raise InputError("no run to validate: give --vllm RESULT.json")
    if (command.profile is None) != command.leave_one_out:
        raise InputError("give either --profile DIR or --leave-one-out")
    if command.log and not command.leave_one_out:
        raise InputError("--log needs --leave-one-out; a profile already holds its costs")
    told = read(command.log, command.vllm, command.warm, metrics=command.metrics)
    comparisons = []
    for bench in told.runs:
        profile, notes = _profile(command, told, bench)
        comparison = validate(command, told, bench, profile)
        comparisons.append(replace(comparison, gaps=(*notes, *comparison.gaps)))
        print("\n".join(table(comparisons[-1])), flush=True)
    print("\n".join(summary(comparisons)))
    if command.json is not None:
        write_text(command.json, json.dumps([document(each) for each in comparisons], indent=1) + "\n")
    return 0


def validate(command: Command, told: Told, bench: BenchRun, profile: Profile) -> Comparison:
    """One run. Raises InputError."""
    policy, windows = "none", iid(0.0)
    if bench.counters is not None:
        policy = command.policy or f"fixed:k={_fixed_k(bench)}"
        windows = _windows(command, bench)
    scheduler = SchedulerConfig(command.max_num_seqs, command.max_num_batched_tokens)
    cached = told.cached(bench)
    comparison = replay(bench, profile, windows, policy=policy, scheduler=scheduler, cached=cached, seed=command.seed)
    if cached is None:
        return comparison
    note = f"{bench.name}: {cached.sum()} prompt tokens taken as cached; replayed as prompts that much shorter"
    return replace(comparison, gaps=(note, *comparison.gaps))


def _fixed_k(bench: BenchRun) -> int:
    """Draft tokens of a draft, if the counters fit only one number. Raises InputError."""
    assert bench.counters is not None
    k, rest = divmod(bench.counters.draft_tokens, bench.counters.drafts)
    if rest:
        raise InputError(f"{bench.path}: drafts differ in length: say with --policy how the server chose them")
    return k


def _windows(command: Command, bench: BenchRun) -> Windows:
    if command.acceptance == "own":
        return acceptance.of_bench(bench, bench.name, command.draft_kind == "ngram", command.seed)
    return acceptance_source(command.acceptance)


def _profile(command: Command, told: Told, bench: BenchRun) -> tuple[Profile, list[str]]:
    if command.profile is not None:
        return Profile.load(command.profile), []
    others, notes = without(told, bench)
    return build(others, name=f"without {bench.name}", draft_kind=command.draft_kind).profile, notes


def without(told: Told, bench: BenchRun) -> tuple[Told, list[str]]:
    """What is told by all but one run, and notes on what of that run had to stay.

    The passes of a draft model cannot be held out if no other log shows them: then they stay, and the note says so.
    """
    notes: list[str] = []
    logs: list[ServerLog] = []
    drafts = sum(log.draft_tokens != 0 for log in told.logs)
    for log in told.logs:
        where = costs.stretch(log, bench)
        if where is not None and log.draft_tokens != 0 and drafts == 1:
            notes.append(f"{bench.name}: the draft's passes are fitted to this run's own log; the target's are not")
        elif where is not None:
            kept = np.ones(len(log.steps), np.bool_)
            kept[where] = False
            if not kept.any():
                continue
            log = log.take(kept)
        logs.append(log)
    runs = [run for run in told.runs if run.path != bench.path]
    return replace(told, logs=logs, runs=runs), notes


def table(comparison: Comparison) -> list[str]:
    """Every metric, live, simulated and the difference; then how far single requests are off."""
    lines = [f"{comparison.name}  policy {comparison.policy}", f"  {'':34}{'live':>12}{'simulated':>12}{'%':>8}"]
    for name, (live, simulated) in comparison.metrics.items():
        if live is None and simulated is None:
            continue
        error = comparison.error_percent(name)
        shown = "" if error is None else f"{error:+8.1f}"
        lines.append(f"  {name:34}{_figure(live):>12}{_figure(simulated):>12}{shown:>8}")
    for latency, errors in comparison.requests.items():
        known = np.abs(errors[np.isfinite(errors)])
        if len(known):
            quantiles = np.percentile(known, [50, 90])
            lines.append(
                f"  {latency} of {len(known)} requests, each against its own: off by {known.mean():.1f} % in the mean, "
                f"{quantiles[0]:.1f} % p50, {quantiles[1]:.1f} % p90, {known.max():.1f} % at most"
            )
        if left := len(errors) - len(known):
            lines.append(f"  {latency}: {left} requests could not be compared (undefined on one side)")
    if comparison.outside:
        lines.append(f"  {comparison.outside:.1%} of forward passes lie beyond the measured range")
    return lines + [f"  note: {gap}" for gap in comparison.gaps]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def summary(comparisons: Sequence[Comparison]) -> list[str]:
    """The headline figures of all runs, percent simulated is off."""
    lines = [f"{'percent':34}" + "".join(f"{name.removesuffix('_ms'):>12}" for name in HEADLINE)]
    for each in comparisons:
        errors = (each.error_percent(name) for name in HEADLINE)
        lines.append(f"{each.name:34}" + "".join("           -" if e is None else f"{e:+12.1f}" for e in errors))
    return lines


def document(comparison: Comparison) -> dict[str, object]:
    """All figures of a run as JSON values."""
    return {
        "run": comparison.name,
        "policy": comparison.policy,
        "metrics": {
            name: {"live": live, "simulated": simulated, "percent": comparison.error_percent(name)}
            for name, (live, simulated) in comparison.metrics.items()
        },
        "requests_percent": {
            name: [None if np.isnan(e) else round(float(e), 3) for e in errors]
            for name, errors in comparison.requests.items()
        },
        "passes_outside_measured": comparison.outside,
        "gaps": list(comparison.gaps),
    }


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of `python -m calibrate.validate_vllm`. Returns the exit status."""
    return run_command(lambda: run(parse(Command, "calibrate.validate_vllm", DESCRIPTION, args)))


if __name__ == "__main__":
    sys.exit(main())
