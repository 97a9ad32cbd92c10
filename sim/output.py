"""What a command line that serves requests does with its outcome: progress meanwhile, files, a figure, a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from sim.results import Results
from traces.errors import InputError


class OutputOptions(Protocol):
    """Fields of a configuration that say where the output goes; see sim.config.SimConfig."""

    @property
    def output_dir(self) -> Path | None: ...
    @property
    def save_detailed(self) -> bool: ...
    @property
    def timeline(self) -> bool: ...
    @property
    def plot(self) -> Path | None: ...
    @property
    def json(self) -> bool: ...


def check_outputs(options: OutputOptions) -> None:
    """Refuse what could not be written before anything runs. Raises InputError."""
    for flag, wanted in (("--save-detailed", options.save_detailed), ("--timeline", options.timeline)):
        if wanted and options.output_dir is None:
            raise InputError(f"{flag} writes into --output-dir: give that too")
    if options.output_dir is not None:
        place = options.output_dir.absolute()
        existing = next(path for path in (place, *place.parents) if path.exists())
        if not existing.is_dir():
            raise InputError(f"--output-dir {options.output_dir}: {existing} is a file, expected a directory")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise InputError(f"--output-dir {options.output_dir}: {existing} cannot be written to")
    if options.plot is not None:
        from sim.plot import check_path

        check_path(options.plot)


def report(options: OutputOptions, run: Results, *shown: Results) -> None:
    """Save and draw the run; print it as JSON, or `shown` (default: the run) side by side as a table."""
    if options.output_dir is not None:
        run.save(options.output_dir, detailed=options.save_detailed, timeline=options.timeline)
    if options.plot is not None:
        from sim.plot import plot

        plot(run, options.plot)
    if options.json:
        sys.stdout.write(run.to_json())
        return
    from sim.table import print_table

    print_table(*(shown or (run,)))


@contextmanager
def requests_bar(policy: str, num_requests: int) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on a terminal's standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(policy, total=num_requests)
        yield lambda ended: bar.update(task, completed=ended)
