"""Eight task workloads: lengths of the named traces, each request of the bank's task that comes nearest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.replay.windows import Windows
from traces import Workload, load
from traces.files import write_text
from traces.formats import FORMATS
from traces.options import TraceOptions

TASKS = {
    "cnn_dailymail": "summarise",
    "xsum": "rewrite",
    "gsm8k": "maths",
    "hotpotqa": "extraction",
    "nq": "question-answering",
    "humaneval": "code",
    "sharegpt": "chat",
    "wmt14": "translate",
}
"""Named trace, whose lengths they are, -> task of smollm2-skip, whose acceptance it is. Two that have no task of their
own take what is left and comes near: xsum a rewriting, hotpotqa a passage found in a text [O]."""
MIXED = "mixed"
"""An eighth of each, in turn."""


def write_workloads(directory: Path, number: int) -> dict[str, str]:
    """A file of `number` requests for each task and one that mixes them; name -> path. Equal calls write equal files.

    The requests are those of seed 0 whatever the seed of a run: a data set does not change with the luck.
    """
    directory.mkdir(parents=True, exist_ok=True)
    made = {name: _of_task(name, number) for name in TASKS}
    made[MIXED] = _mixed(list(made.values()), number)
    paths = {name: directory / f"{name}.csv" for name in made}
    for name, path in paths.items():
        write_text(path, FORMATS["lengths"]().write(made[name]))
    return {name: str(path) for name, path in paths.items()}


def rate_of(windows: Windows, workload: str) -> float:
    """Mean chance of a first draft token in what a workload replays: the trajectories of its task, or else all."""
    rows = np.repeat(np.array(windows.task, object) == TASKS.get(workload), windows.rows_of)
    first = windows.accept[:, 0]
    return float((first[rows] if rows.any() else first).mean(dtype=np.float64))


def _of_task(name: str, number: int) -> Workload:
    drawn = load(TraceOptions(trace=name, num_prompts=number, request_rate="inf"))
    return replace(drawn, task=(TASKS[name],))


def _mixed(workloads: list[Workload], number: int) -> Workload:
    kinds = np.arange(number) % len(workloads)
    place = np.arange(number) // len(workloads)

    def column(name: str) -> NDArray[np.int64]:
        return np.array([getattr(workloads[kind], name)[at] for kind, at in zip(kinds, place, strict=True)])

    return replace(
        workloads[0],
        arrival_s=np.zeros(number),
        prompt_tokens=column("prompt_tokens"),
        output_tokens=column("output_tokens"),
        task=tuple(TASKS.values()),
        task_id=kinds,
    )
