"""python -m sim.tune --profile P --acceptance A --trace T --goodput ttft:500 tpot:50: which speculation to deploy."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sim.config import OUTPUTS, SimConfig
from sim.sweep.axes import derived_flags
from sim.sweep.progress import bar
from sim.tune.engines import Engine
from traces.command import parse
from traces.errors import run_command

if TYPE_CHECKING:
    from pandas import DataFrame

DESCRIPTION = (
    "The speculation to deploy for a pair, a device, a workload and SLOs: draft length by batch size, checked by "
    "simulation, with its gain over plain decoding and over the best constant length."
)
NOT_ASKED = OUTPUTS | {"policy", "cap", "acceptance_rule", "baseline"}
"""What tuning decides itself."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """What to print, and how far to look."""

    engine: Engine = "vllm"
    """vllm: --speculative-config with K by batch size; sglang: arguments and the adaptive configuration."""

    max_k: int = 7
    """Longest draft that is considered."""

    seeds: int = 5
    """Paired seeds, from --seed on; more seeds, narrower intervals."""

    objective: Literal["mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms", "output_throughput", "request_goodput"] | None = (
        None
    )
    """What is to improve. Default: mean_tpot_ms; output_throughput where requests do not arrive by the clock."""

    policies: tuple[str, ...] | None = None
    """Policies to hold the schedule against. Default: every lossless one."""

    slo_attainment: float = 0.9
    """Share of the requests that must meet --goodput at capacity."""

    context_axis: bool = False
    """Also print K by batch size and context (vllm; proposed, in no release)."""

    output_dir: Path | None = None
    """Keep the runs there, as of a sweep; what is there does not run again. Default: a directory that is removed."""

    jobs: int | None = None
    """Runs at a time. Default: the cores of this machine."""

    json: bool = False
    """Print the advice as JSON and nothing else."""


def main() -> int:
    options: Any = parse(_flags(), "sim.tune", DESCRIPTION)
    names = [each.name for each in fields(SimConfig) if each.name not in NOT_ASKED]
    config = SimConfig(**{name: getattr(options, name) for name in names})

    from sim.sweep.runner import sweep
    from sim.tune.advice import advise, as_dict
    from sim.tune.report import write

    with ExitStack() as opened:
        directory = options.output_dir or opened.enter_context(tempfile.TemporaryDirectory(prefix="draftlab-tune-"))
        simulate = partial(sweep, directory=directory, jobs=options.jobs, progress=opened.enter_context(bar()))
        asked: list[SimConfig] = []

        def run(configs: Sequence[SimConfig]) -> DataFrame:
            asked.extend(configs)
            return simulate(configs)

        advice = advise(
            config,
            run,
            engine=options.engine,
            max_k=options.max_k,
            seeds=options.seeds,
            objective=options.objective,
            others=options.policies,
            attainment=options.slo_attainment,
            context_axis=options.context_axis,
        )
        simulate(asked)  # all is there: it only writes one table of everything
    if options.json:
        print(json.dumps(as_dict(advice), indent=1, allow_nan=False))
    else:
        write(advice)
    return 0


def _flags() -> type[TuneOptions]:
    return derived_flags("TuneFlags", TuneOptions, NOT_ASKED, lambda name, kind, default: (kind, default))


if __name__ == "__main__":
    sys.exit(run_command(main))
