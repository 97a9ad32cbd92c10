"""python -m sim --trace NAME|FILE --policy NAME: replay a workload on a simulated server and print what clients see."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from sim.config import SimConfig
from sim.output import check_outputs, report, requests_bar
from sim.results import Results
from sim.simulate import check, load_inputs, simulate
from traces.command import parse
from traces.errors import run_command
from traces.registry import Registry

DESCRIPTION = (
    "Simulate LLM serving with speculative decoding: a trace, a length policy, a straggler cap, a GPU profile."
)


def main() -> int:
    config = parse(SimConfig, "sim", DESCRIPTION)
    if _listed(config):
        return 0
    check_outputs(config)
    inputs = load_inputs(config)
    settings = [config]
    if config.baseline is not None:
        settings.append(replace(config, policy=config.baseline, cap=None, acceptance_rule=None))
        check(settings[1], inputs)
    runs: list[Results] = []
    for own in settings:
        with requests_bar(own.policy, len(inputs.workload)) as progress:
            runs.append(simulate(own, inputs, progress))
    report(config, runs[0] if len(runs) == 1 else _with_baseline(*runs), *runs)
    for policy, run in zip([own.policy for own in settings], runs, strict=True):
        if run.interrupted:
            print(f"interrupted: figures of {policy} cover what had happened by then", file=sys.stderr)
        elif not run.metrics["completed"]:
            print(f"warning: no request of {policy} was completed", file=sys.stderr)
    return 130 if any(run.interrupted for run in runs) else 0


def _with_baseline(run: Results, baseline: Results) -> Results:
    """The run with the baseline's figures among its own, and its cap, its rule and its notes among the notes."""
    decided = {key: baseline.config[key] for key in ("policy", "cap", "acceptance_rule")}
    name = f"baseline {decided['policy']}"
    notes = [f"{name}: cap {decided['cap']}, acceptance rule {decided['acceptance_rule']}"]
    notes += [f"{name}: {note}" for note in baseline.provenance.notes if note not in run.provenance.notes]
    provenance = replace(run.provenance, notes=(*run.provenance.notes, *notes))
    return replace(run, metrics={**run.metrics, "baseline": {**decided, **baseline.metrics}}, provenance=provenance)


def _listed(config: SimConfig) -> bool:
    """Whether an option asked for a list, which is then printed."""
    if config.policy == "list":
        _print_policies()
    elif config.cap == "list":
        _print_caps()
    elif config.acceptance_rule == "list":
        _print_rules()
    elif config.profile == "list":
        _print_profiles()
    elif config.acceptance == "list":
        _print_acceptance()
    else:
        return False
    return True


def _print_policies() -> None:
    from sim.policies import policies

    _print_columns([(name, _kind(policies[name]), "+".join(policies[name].hooks())) for name in policies], policies)


def _print_rules() -> None:
    from sim.policies import acceptance_rules

    _print_columns([(name, _kind(acceptance_rules[name])) for name in acceptance_rules], acceptance_rules)


def _kind(entry: Any) -> str:
    return "lossless" if entry.lossless else "LOSSY"


def _print_columns(rows: list[tuple[str, ...]], entries: Registry[Any]) -> None:
    """The columns, then source and summary of the entry that the first one names."""
    rows = [(*row, entries[row[0]].source, (entries[row[0]].__doc__ or "").strip().splitlines()[0]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_caps() -> None:
    from sim.policies import caps

    for name in caps:
        print(f"{name:<18}{(caps[name].__doc__ or '').strip().splitlines()[0]}")


def _print_acceptance() -> None:
    from sim.replay import bundled
    from sim.replay.sources import SOURCES

    for name in bundled.names():
        print(f"{name:<18}{bundled.about(name)}")
    print("\n".join(SOURCES))


def _print_profiles() -> None:
    from sim.replay import catalogue

    for row in catalogue.rows():
        default = "  (default)" if row.name == catalogue.DEFAULT else ""
        print(f"{row.name:<44}{row.kv_tokens:>12,} KV tokens  {row.note}{default}")
    print("\nnot offered:")
    for shape in catalogue.not_offered():
        print(f"{shape.shape:<44}{shape.reason}")


if __name__ == "__main__":
    sys.exit(run_command(main))
