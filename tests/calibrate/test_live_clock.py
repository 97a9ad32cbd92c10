"""SimPy's clock held to the wall."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
from calibrate.live.clock import Marks, WallEnvironment  # noqa: E402


def waits(env: WallEnvironment, *delays: float) -> list[tuple[float, float]]:
    """(clock, wall) after each delay."""
    seen = []

    def process() -> Any:
        for delay in delays:
            yield env.timeout(delay)
            seen.append((float(env.now), env.wall_s))

    env.process(process())
    env.restart()
    env.run()
    return seen


def test_events_are_not_early() -> None:
    for clock, wall in waits(WallEnvironment(), 0.02, 0.03):
        assert wall >= clock


def test_idle_stretches_are_skipped() -> None:
    """An hour passes on the clock, hardly a moment for us."""
    started = time.perf_counter()
    seen = waits(WallEnvironment(skip_idle=True), 1800.0, 1800.0)
    assert time.perf_counter() - started < 60
    assert [clock for clock, _ in seen] == [1800.0, 3600.0]
    assert all(wall >= clock for clock, wall in seen)


def test_marks_measure_what_lies_between() -> None:
    marks = Marks(torch.device("cpu"))
    for pause in (0.0, 0.02, 0.0):
        time.sleep(pause)
        marks.mark()
    first, second = marks.read()
    assert first >= 0.02
    assert second >= 0
    marks.mark()
    assert marks.read() == []
