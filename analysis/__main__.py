"""python -m analysis report DIR: a sweep as one HTML page; python -m analysis reproduce dsde|adasd: papers' claims."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from sim.config import SimConfig
from traces.command import parse
from traces.errors import InputError, run_command
from traces.files import write_text

USAGE = """\
usage: python -m analysis COMMAND ...

  report DIR [--output FILE]   one HTML page: findings, figures, provenance of a sweep (python -m sim.sweep)
  reproduce dsde|adasd         a paper's experiments in simulation: published, ours, whether the shape holds

Options of a command: python -m analysis COMMAND --help
"""


@dataclass(frozen=True)
class Report:
    """What a sweep found, as one self-contained HTML page: findings, figures, provenance."""

    directory: Positional[Path]
    """Directory that `python -m sim.sweep` or `python -m sim --output-dir` wrote, or one that holds such of runs."""

    output: Path | None = None
    """The page. Default: report.html in the directory."""

    no_rerun: bool = False
    """Leave out the figures that need a few of the runs to be simulated again (draft lengths, timeline)."""


@dataclass(frozen=True)
class Reproduce:
    """A paper's experiments in simulation, held against what it published: a table, a figure, and every run."""

    paper: Positional[Literal["dsde", "adasd"]]
    """dsde (arXiv 2509.01083) or adasd (arXiv 2512.11280, our reconstruction)."""

    output_dir: Path | None = None
    """Directory for claims.md, figures and runs. What is there does not run again. Default: reproduce-PAPER."""

    profile: str = SimConfig.profile
    """Costs of a pair of models on a device."""

    acceptance: str = SimConfig.acceptance
    """Acceptance at T = 0: recorded windows by name or in a directory."""

    sampled_acceptance: str = "regimes"
    """Acceptance at T = 1: a bank recorded by sampling, or a synthetic source, which is tilted to each task's rate."""

    num_prompts: int | None = None
    """Requests of each workload. Default: 128 (dsde), 32 (adasd, served one at a time)."""

    seed: tuple[int, ...] = (0, 1, 2)
    """Seeds; intervals are over them."""

    jobs: int | None = None
    """Runs at a time. Default: the cores of this machine."""

    live_lossy: Path | None = None
    """adasd: directory of a run of `python -m calibrate.live --policy adasd`, to see what its text loses."""

    live_lossless: Path | None = None
    """adasd: the same requests and models with a lossless policy."""


def write_report(options: Report) -> None:
    from analysis.frame import read_frame
    from analysis.report import report

    if not options.directory.is_dir():
        raise InputError(f"{options.directory}: no such directory")
    output = options.output or options.directory / "report.html"
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: {output.parent} is no directory")
    table = options.directory / "runs.parquet"
    frame = read_frame(options.directory)
    write_text(output, report(frame, table if table.exists() else None, not options.no_rerun))
    print(f"{output}: {len(frame):,} runs")


def write_reproduction(options: Reproduce) -> None:
    from analysis.reproduction import adasd, dsde
    from analysis.reproduction.runs import Setting

    if options.num_prompts is not None and options.num_prompts < 1:
        raise InputError(f"--num-prompts {options.num_prompts}: expected a whole number of at least 1")
    if not options.seed:
        raise InputError("--seed: expected at least one seed")
    live = (options.live_lossy, options.live_lossless)
    if live != (None, None) and (options.paper != "adasd" or None in live):
        raise InputError("--live-lossy and --live-lossless go together, with adasd")
    setting = Setting(
        directory=options.output_dir or Path(f"reproduce-{options.paper}"),
        profile=options.profile,
        acceptance=options.acceptance,
        sampled_acceptance=options.sampled_acceptance,
        num_prompts=options.num_prompts or {"dsde": 128, "adasd": 32}[options.paper],
        seeds=tuple(dict.fromkeys(options.seed)),
        jobs=options.jobs,
    )
    found = dsde.reproduce(setting) if options.paper == "dsde" else adasd.reproduce(setting, *live)
    page = setting.directory / "claims.md"
    write_text(page, found.markdown())
    print(found.text())
    print(f"\n{found.summary()}; tables and set-up: {page}")


def main(arguments: Sequence[str] | None = None) -> None:
    args = list(sys.argv[1:] if arguments is None else arguments)
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif args[0] == "report":
        write_report(parse(Report, "analysis report", str(Report.__doc__), args[1:]))
    elif args[0] == "reproduce":
        write_reproduction(parse(Reproduce, "analysis reproduce", str(Reproduce.__doc__), args[1:]))
    else:
        raise InputError(f"unknown command {args[0]!r}; expected report or reproduce (see python -m analysis --help)")


if __name__ == "__main__":
    sys.exit(run_command(main))
