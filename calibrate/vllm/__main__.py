"""python -m calibrate.vllm --log LOG --bench RESULT --metrics SCRAPE --output DIR: a profile from a running vLLM."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from calibrate.vllm import costs
from calibrate.vllm.bench import read_bench
from calibrate.vllm.log import EngineSteps, read_log
from calibrate.vllm.profile import Measured, Told, build
from calibrate.vllm.responses import read_responses
from calibrate.vllm.scrape import read_scrape
from traces.command import parse
from traces.errors import InputError, run_command

DESCRIPTION = (
    "Build a profile, and acceptance windows, from what a vLLM server tells its operator: for python -m sim --profile "
    "DIR --acceptance DIR. Nothing of the server is touched."
)


@dataclass(frozen=True)
class Command:
    """What there is of one server or of several alike; give any combination that shows steps without speculation."""

    log: tuple[Path, ...] = ()
    """Logs of servers with --enable-logging-iteration-details (.gz too): the time of every engine step."""

    bench: tuple[Path, ...] = ()
    """Results of `vllm bench serve --save-result --save-detailed`: steps where no log is, host time, acceptance."""

    warm: tuple[Path, ...] = ()
    """Results, like --bench, of runs whose prompts were all in a warm prefix cache (a run repeated)."""

    responses: tuple[Path, ...] = ()
    """Responses under --per-request-spec-decode-metrics detailed, JSON or JSONL: acceptance step by step."""

    metrics: tuple[Path, ...] = ()
    """Scrapes of /metrics; of two or more, acceptance is taken between the first and the last."""

    draft_kind: Literal["autoregressive", "ngram"] = "autoregressive"
    """How the server drafts: a model, or a look-up (ngram, suffix)."""

    target: str | None = None
    """Name of the target. Default: what the bench result calls it."""

    draft: str = "unknown"
    """Name of the draft model."""

    device: str = "unknown"
    """Name of the device."""

    dtype: str = "unknown"
    """Of the weights."""

    num_gpus: int = 1
    """GPUs of the target (tensor parallelism)."""

    output: Path = Path("vllm-profile")
    """Directory for profile.json, cost.json, forward.parquet and, with speculation, acceptance.parquet."""


def run(command: Command) -> int:
    """Read, fit, write, and show what is known and what is assumed. Raises InputError."""
    if not (command.log or command.bench or command.warm):
        raise InputError("nothing to fit costs to: give --log, --bench or both")
    told = read(command.log, command.bench, command.warm, command.responses, command.metrics)
    measured = build(
        told,
        name=command.output.name,
        draft_kind=command.draft_kind,
        device=command.device,
        target_id=command.target,
        draft_id=command.draft,
        dtype=command.dtype,
        num_gpus=command.num_gpus,
    )
    measured.profile.save(command.output, frame(told))
    if measured.windows is not None:
        measured.windows.save(command.output)
    print("\n".join(report(measured)))
    print(f"wrote {command.output}")
    return 0


def read(
    logs: Sequence[Path],
    bench: Sequence[Path],
    warm: Sequence[Path] = (),
    responses: Sequence[Path] = (),
    metrics: Sequence[Path] = (),
) -> Told:
    """Read all files. Raises InputError for the first that cannot be."""
    return Told(
        logs=[read_log(path) for path in logs],
        runs=[read_bench(path) for path in (*bench, *warm)],
        warm=frozenset(map(str, warm)),
        responses=[response for path in responses for response in read_responses(path)],
        scrapes=[read_scrape(path) for path in metrics],
    )


def frame(told: Told) -> pd.DataFrame | None:
    """The logged steps of the target alone, as forward.parquet keeps measured points."""
    logs = [log for log in told.logs if log.draft_tokens == 0]
    if not logs:
        return None
    p = costs.points(EngineSteps.concat([log.steps for log in logs]))
    columns = ("phase", "num_seqs", "new_tokens", "kv_tokens", "query_key_pairs", "seconds")
    steps = pd.DataFrame({name: getattr(p, name) for name in columns})
    steps.insert(0, "model", "target")
    steps["query_tokens"] = steps["new_tokens"] / steps["num_seqs"]
    steps["context_tokens"] = (steps["kv_tokens"] - steps["new_tokens"]) / steps["num_seqs"]
    return steps.assign(p10=np.nan, p90=np.nan, repeats=1)


def report(measured: Measured) -> list[str]:
    """What was found, what is known and what is assumed, one line each."""
    profile, windows = measured.profile, measured.windows
    lines = [f"{profile.engine}, {profile.target_model.name}, draft: {profile.draft_model.name} ({profile.draft_kind})"]
    for what, e in measured.errors.items():
        lines.append(
            f"steps {what}: {e['steps']:g}, error of a step {e['mean_percent']:.1f} % (p95 {e['p95_percent']:.1f} %), "
            f"of their sum {e['total_percent']:+.1f} %"
        )
    for what, text in {**profile.provenance, "host": profile.host.provenance}.items():
        lines.append(f"{what}: {text}")
    if windows is not None:
        stands = windows.accept[windows.proposed > 0, 0].mean()
        lines.append(
            f"acceptance: {len(windows.start)} texts, chance of the first draft token at a position {stands:.1%}"
        )
        lines += [f"  {note}" for note in windows.notes]
    else:
        lines.append("acceptance: nothing tells; choose one with python -m sim --acceptance")
    return lines + [f"gap: {gap}" for gap in measured.gaps]


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of `python -m calibrate.vllm`. Returns the exit status."""
    return run_command(lambda: run(parse(Command, "calibrate.vllm", DESCRIPTION, args)))


if __name__ == "__main__":
    sys.exit(main())
