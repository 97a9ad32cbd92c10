"""python -m analysis report DIR: what a sweep found, as one HTML page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from traces.command import parse
from traces.errors import InputError, run_command
from traces.files import write_text

USAGE = """\
usage: python -m analysis COMMAND ...

  report DIR [--output FILE]   one HTML page: findings, figures, provenance of a sweep (python -m sim.sweep)

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


def main(arguments: Sequence[str] | None = None) -> None:
    args = list(sys.argv[1:] if arguments is None else arguments)
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
    elif args[0] == "report":
        write_report(parse(Report, "analysis report", str(Report.__doc__), args[1:]))
    else:
        raise InputError(f"unknown command {args[0]!r}; expected report (see python -m analysis --help)")


if __name__ == "__main__":
    sys.exit(run_command(main))
