"""Run what is missing of a sweep, journal every run as it finishes, write the table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config import SimConfig
from sim.sweep.axes import resolved
from sim.sweep.backends import workers
from sim.sweep.journal import Journal
from sim.sweep.progress import Progress
from sim.sweep.run import Row, Task, execute
from sim.sweep.table import read, write
from traces.errors import InputError
from traces.options import TraceOptions

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_EVERY_S = 30.0


def sweep(
    configs: Sequence[SimConfig],
    directory: str | Path,
    *,
    backend: str = "loky",
    address: str | None = None,
    jobs: int | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
) -> DataFrame:
    """Simulate every configuration that `directory` has no run of; the table of all of them, in the order given.

    The same configurations give the same table whatever the backend and however often the sweep was interrupted; at
    most the runs in flight are lost. A run that fails is a row with its `error`. Raises InputError for what can be
    seen before anything runs, and KeyboardInterrupt once the table of what is finished is written.
    """
    if not configs:
        raise InputError("nothing to run: a setting has no value")
    directory = Path(directory)
    tasks = {task.key: task for task in map(Task.of, dict.fromkeys(map(resolved, configs)))}
    with Journal(directory) as journal:
        rows = journal.rows
        missing = [key for key in tasks if key not in rows or (retry_failed and rows[key]["error"] is not None)]
        written_s = time.monotonic()
        try:
            for finished, row in enumerate(_finished({key: tasks[key] for key in missing}, backend, address, jobs), 1):
                journal.append(row)
                if progress is not None:
                    progress(finished, len(missing))
                if time.monotonic() - written_s > TABLE_EVERY_S:
                    write(directory, [rows[key] for key in tasks if key in rows])
                    written_s = time.monotonic()
        finally:
            write(directory, [rows[key] for key in tasks if key in rows])
    return read(directory)


def _finished(tasks: dict[str, Task], backend: str, address: str | None, jobs: int | None) -> Iterator[Row]:
    """Rows as their runs finish."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    if not tasks:
        return
    with workers(backend, address, jobs):
        calls = (delayed(execute)(tasks[key], key) for key in _by_workload(tasks))
        try:
            yield from Parallel(return_as="generator_unordered", batch_size=1)(calls)
        except TerminatedWorkerError:
            raise InputError(
                "a process of the sweep was killed, probably for want of memory: what is finished is kept; try again "
                "with fewer --jobs"
            ) from None


def _by_workload(tasks: dict[str, Task]) -> Iterator[str]:
    """Runs over one workload in a row, so that a process loads it once."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for key, task in tasks.items():
        workload = tuple(getattr(task.config, each.name) for each in fields(TraceOptions))
        groups.setdefault(workload, []).append(key)
    for keys in groups.values():
        yield from keys
