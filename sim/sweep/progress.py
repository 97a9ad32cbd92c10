"""How far a sweep is, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""(finished, all) of the runs that were missing."""


@contextmanager
def bar() -> Iterator[Progress | None]:
    """A bar with the time left on a terminal's standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as shown:
        task, before = shown.add_task("", total=None), 0

        def progress(finished: int, missing: int) -> None:
            nonlocal task, before
            if finished <= before:  # another sweep began
                shown.reset(task)
            before = finished
            shown.update(task, completed=finished, total=missing)

        yield progress
