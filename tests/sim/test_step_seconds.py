"""The cost model asked about alternatives of a step: what a policy is told is what the step then takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.control.batch import DecodeBatch
from sim.control.executor import Plan
from sim.replay.acceptance import Replay
from sim.replay.execution import Execution
from sim.replay.profile import Profile
from sim.replay.simulated import SimulatedExecutor
from sim.replay.sources import acceptance_source
from tests.sim.serving import requests

LENGTHS = np.array([[0, 0, 0], [1, 1, 1], [4, 0, 2], [3, 7, 1], [0, 0, 5]])


def executor(draft: Any, verify: Any) -> SimulatedExecutor:
    replay = Replay(acceptance_source("iid:0.7"), requests([8] * 3, 50), 0)
    return SimulatedExecutor(Profile.load("default"), replay, Execution(draft, verify))


def batch() -> DecodeBatch:
    """Three sequences; the draft is 1, 3 and 40 tokens behind."""
    slot, known = np.arange(3), np.array([100, 2000, 333])
    return DecodeBatch(slot, slot, known, known - [1, 3, 40], slot + 1, 49 - slot, 0.0, 3, 0)


@pytest.mark.parametrize("draft", ["padded", "compact"])
@pytest.mark.parametrize("verify", ["ragged", "padded"])
def test_many_alternatives_are_what_the_steps_take(draft, verify):
    simulated = executor(draft, verify)
    taken = [simulated.run(Plan(batch(), lengths, True), None, None).time.total_s for lengths in LENGTHS]
    assert simulated.step_seconds_many(batch(), LENGTHS) == pytest.approx(taken, rel=1e-12)


@pytest.mark.parametrize("draft", ["padded", "compact"])
def test_one_alternative_is_a_row_of_many(draft):
    simulated = executor(draft, "ragged")
    each = [simulated.step_seconds(batch(), lengths) for lengths in LENGTHS]
    assert simulated.step_seconds_many(batch(), LENGTHS) == pytest.approx(each, rel=1e-12)


@pytest.mark.parametrize("verify", ["ragged", "padded"])
def test_verification_alone_is_the_step_without_its_draft(verify):
    simulated = executor("padded", verify)
    times = [simulated.run(Plan(batch(), lengths, True), None, None).time for lengths in LENGTHS]
    expected = [time.verify_s + time.host_s for time in times]
    assert simulated.verify_seconds_many(batch(), LENGTHS) == pytest.approx(expected, rel=1e-12)


def test_asking_runs_no_pass():
    simulated = executor("padded", "ragged")
    simulated.step_seconds_many(batch(), LENGTHS)
    assert (simulated.passes, simulated.outside) == (0, 0)
