"""Wall clock and time marks: SimPy's clock held to real time, and the seconds between two places in a step."""

from __future__ import annotations

import itertools
import time

import simpy
import torch


class WallEnvironment(simpy.Environment):
    """Events happen at their time on the wall. Work takes its time by itself; only waiting is left to do.

    skip_idle  jump over stretches without work instead of sleeping through them: the same steps, sooner done
    """

    def __init__(self, *, skip_idle: bool = False) -> None:
        super().__init__()
        self.skip_idle = skip_idle
        self._zero_s = time.perf_counter()

    def restart(self) -> None:
        """Time 0 is now: call it when all is loaded."""
        self._zero_s = time.perf_counter()

    @property
    def wall_s(self) -> float:
        """Seconds since time 0, skipped ones included."""
        return time.perf_counter() - self._zero_s

    def step(self) -> None:
        wait_s = self.peek() - self.wall_s
        if 0 < wait_s < float("inf"):
            if self.skip_idle:
                self._zero_s -= wait_s
            else:
                time.sleep(wait_s)
        super().step()


class Marks:
    """Time stamps between parts of a step. On a GPU they are events in its stream, waited for in `read` alone."""

    def __init__(self, device: torch.device) -> None:
        self._gpu = device if device.type == "cuda" else None
        self._mps = device.type == "mps"
        self._marks: list[object] = []

    def mark(self) -> None:
        if self._gpu is not None:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._gpu))
            self._marks.append(event)
            return
        if self._mps:
            torch.mps.synchronize()
        self._marks.append(time.perf_counter())

    def read(self) -> list[float]:
        """Seconds between the marks in order; the marks are gone then. On a GPU the host waits for the last."""
        marks, self._marks = self._marks, []
        if self._gpu is None:
            return [float(b) - float(a) for a, b in itertools.pairwise(marks)]  # type: ignore[arg-type]
        marks[-1].synchronize()  # type: ignore[attr-defined]
        return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(marks)]  # type: ignore[attr-defined]
