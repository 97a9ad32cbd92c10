"""The live runs: repeats interleaved, each in a directory of its own that is whole or is run again."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from calibrate import machine
from calibrate.live.run import failure_of, run_live
from calibrate.validation.inputs import Inputs, Say
from sim.results import SavedResults, read_results
from traces.errors import InputError
from traces.files import write_text

DONE = "load.json"


@dataclass(frozen=True)
class LiveRuns:
    """The repeats of one policy at one rate, and the machine's load around each."""

    policy: str
    rate: str
    repeats: tuple[SavedResults, ...]
    loads: tuple[dict[str, Any], ...]


def run_all(inputs: Inputs, say: Say) -> Iterator[LiveRuns]:
    """Run what is not there yet; then yield all, by rate and policy. Raises InputError, or KeyboardInterrupt."""
    config = inputs.config
    for repeat in range(config.repeats):
        for rate in config.request_rate:
            for policy in config.policy:
                directory = _directory(inputs, policy, rate, repeat)
                if not (directory / DONE).is_file():
                    say(f"live: {policy} at {rate} requests/s, {repeat + 1} of {config.repeats}")
                    _run(inputs, policy, rate, directory)
    for rate in config.request_rate:
        for policy in config.policy:
            paths = [_directory(inputs, policy, rate, repeat) for repeat in range(config.repeats)]
            loads = tuple(json.loads((path / DONE).read_text("utf-8")) for path in paths)
            yield LiveRuns(policy, rate, tuple(map(read_results, paths)), loads)


def _directory(inputs: Inputs, policy: str, rate: str, repeat: int) -> Path:
    name = "".join(c if c.isalnum() or c in "=.,-+" else "_" for c in policy)
    return inputs.config.output / "live" / f"{name}@{rate}" / str(repeat)


def _run(inputs: Inputs, policy: str, rate: str, directory: Path) -> None:
    if directory.exists():
        shutil.rmtree(directory)
    config = replace(inputs.live_config(policy, rate), output_dir=directory)
    shared, device = inputs.live_inputs(rate), inputs.pair.device
    before, busy = machine.load(device), _Busy()
    results = run_live(config, shared)
    others = busy.others()
    results.save(directory, detailed=True)
    if results.interrupted:
        raise KeyboardInterrupt
    if (failure := failure_of(results)) is not None:
        raise InputError(f"live run of {policy} at {rate} requests/s: {failure}; runs that were finished are kept")
    document = {"before": before, "after": machine.load(device), "cores_busy_with_others": others}
    write_text(directory / DONE, json.dumps(document, indent=1) + "\n")


class _Busy:
    """CPU time that other processes took meanwhile, in cores."""

    def __init__(self) -> None:
        self._then = self._now()

    def others(self) -> float:
        spent = [now - then for now, then in zip(self._now(), self._then, strict=True)]
        return round(max(spent[1] - spent[2], 0.0) / max(spent[0], 1e-9), 3)

    @staticmethod
    def _now() -> tuple[float, float, float]:
        whole, own = psutil.cpu_times(), psutil.Process().cpu_times()
        idle = whole.idle + getattr(whole, "iowait", 0.0)
        guests = getattr(whole, "guest", 0.0) + getattr(whole, "guest_nice", 0.0)  # counted in user too
        return time.perf_counter(), sum(whole) - guests - idle, own.user + own.system
