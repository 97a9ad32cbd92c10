"""Advice in print: yes or no first, then what to paste, then what it rests on."""

from __future__ import annotations

import json
import sys

from sim.table import number
from sim.tune import engines
from sim.tune.advice import HIGHER_IS_BETTER, NONE, Advice

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
BEST_SHOWN = 6


def write(advice: Advice) -> None:
    """To standard output."""
    lines = [*_verdict(advice), "", *_configuration(advice), "", *_reasons(advice)]
    sys.stdout.write("\n".join(lines) + "\n\n")
    _table(advice)
    for note in _notes(advice):
        print(f"note: {note}")


def _verdict(advice: Advice) -> list[str]:
    over = f"{advice.over_none} of the speed without speculation, by {advice.objective}"
    return [
        f"deploy the schedule?         {advice.over_none.verdict}: {over}",
        f"instead of {advice.best_k}?       {advice.over_fixed.verdict}: {advice.over_fixed}",
    ]


def _configuration(advice: Advice) -> list[str]:
    rows, profile = advice.schedule.rows, advice.profile
    if advice.engine == "sglang":
        arguments = " ".join(engines.sglang_arguments(rows, profile))
        return [arguments, f"adaptive.json: {json.dumps(engines.sglang_config(rows))}"]
    config = engines.vllm_config(rows, profile)
    lines = [f"--speculative-config '{json.dumps(config)}'"]
    if advice.contexts:
        axis = json.dumps(engines.with_context_axis(config, advice.contexts))
        lines += [
            "",
            "with a context axis, as proposed for vLLM (RFC 48627); in no release, and not simulated here:",
            axis,
        ]
    return lines


def _reasons(advice: Advice) -> list[str]:
    found, most = advice.schedule, advice.config.max_num_seqs
    k = int(advice.best_k.partition("=")[2])
    best = "the schedule" if advice.best == advice.policy else advice.best

    def until(crossover: int | None) -> str:
        if crossover == 1:
            return "at no batch"
        return f"at every batch up to {most}" if crossover is None else f"below batch {crossover}"

    pays = f"{until(found.crossover())} with the best K; {until(found.crossover(k))} with K = {k}"
    lines = [
        f"speculation pays             {pays}",
        f"best policy                  {best}: {advice.best_over_none}, {advice.best_over_none.verdict}",
    ]
    if advice.capacity_gain is not None:
        slo = " ".join(advice.config.goodput)
        unit = "times the trace's density" if (advice.config.request_rate or "").startswith("trace") else "requests/s"
        without, with_ = (advice.capacity[spec][0] for spec in (NONE, advice.policy))
        gain = advice.capacity_gain
        ratio = f"{gain}, {gain.verdict}" if gain.ratio == gain.ratio else "no ratio"
        lines.append(
            f"capacity within {slo}  {number(without)} {unit} without, {number(with_)} with the schedule: {ratio}"
        )
    return lines


def _table(advice: Advice) -> None:
    """The policies by the objective, and the speed-up by batch and K that the schedule follows."""
    from rich.box import ASCII
    from rich.console import Console
    from rich.table import Table

    style = {"box": ASCII, "show_edge": False, "pad_edge": False, "border_style": "dim", "header_style": "bold"}
    good = advice.frame[advice.frame["error"].isna()]
    means = good.groupby("policy", sort=False)[[advice.objective, "mean_ttft_ms", "output_throughput"]].mean()
    means = means.sort_values(advice.objective, ascending=advice.objective not in HIGHER_IS_BETTER)
    shown = [*means.index[:BEST_SHOWN]]
    shown += [spec for spec in (advice.policy, advice.best_k, NONE) if spec not in shown]
    policies = Table(**style)  # type: ignore[arg-type]
    for label in ("policy", advice.objective, "mean_ttft_ms", "output_throughput"):
        policies.add_column(label, justify="left" if label == "policy" else "right")
    for spec in shown:
        row = means.loc[spec]
        policies.add_row("the schedule" if spec == advice.policy else str(spec), *(number(value) for value in row))
    grid = Table(**style)  # type: ignore[arg-type]
    grid.add_column("batch", justify="right")
    for k in range(1, len(advice.schedule.emitted)):
        grid.add_column(f"K = {k}", justify="right")
    grid.add_column("chosen", justify="right")
    for batch in (size for size in BATCHES if size <= len(advice.schedule.k)):
        cells = [f"{value:.2f}x" for value in advice.schedule.speedup[batch - 1, 1:]]
        grid.add_row(str(batch), *cells, str(advice.schedule.k[batch - 1]))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(policies, "", "expected tokens per second over plain decoding, by the cost model:", grid, "")


def _notes(advice: Advice) -> list[str]:
    notes = engines.notes(advice.engine, advice.profile, advice.config.num_replicas)
    failed = advice.frame[advice.frame["error"].notna()]
    for policy, error in failed.groupby("policy", sort=False)["error"].first().items():
        notes.append(f"{policy} could not be simulated: {error}")
    origin = advice.frame.loc[advice.frame["error"].isna(), "provenance"].iloc[0]
    if origin["synthetic"]:
        notes.append(f"synthetic: {'; '.join(origin['synthetic'])}")
    notes.append("the best K and the best policy were picked on the seeds that they are compared on")
    return notes
