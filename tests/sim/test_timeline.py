"""The trace events: valid, nested, complete."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest

from sim.timeline import write_timeline
from tests.sim.runs import busy, empty, small


def trace(run) -> dict:
    file = io.StringIO()
    write_timeline(file, run.log, {"seed": 7})
    return json.loads(file.getvalue())


def events(run, phase: str) -> list[dict]:
    return [event for event in trace(run)["traceEvents"] if event["ph"] == phase]


@pytest.mark.parametrize("run", [small, empty, lambda: busy(30)])
def test_every_event_has_what_the_format_asks_for(run):
    document = trace(run())
    assert document["displayTimeUnit"] == "ms"
    assert document["otherData"] == {"seed": 7}
    for event in document["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "ts"} <= set(event)
        assert event["ts"] >= 0
        assert event["ph"] in "XCMibe"
        assert event["ph"] != "X" or event["dur"] >= 0


def test_parts_lie_inside_their_step():
    slices = events(busy(30), "X")
    steps = [event for event in slices if event["name"] == "step"]
    assert len(steps) == len(busy(30).log.steps)
    inside, step = 0, None
    for event in slices:
        if event["name"] == "step":
            step = event
            continue
        assert step["ts"] <= event["ts"]
        assert round(event["ts"] + event["dur"], 3) <= round(step["ts"] + step["dur"], 3)
        inside += 1
    assert inside > len(steps)


def test_step_times_in_microseconds():
    # the second step of the small run: 0.2 s to 0.3 s, draft 20 ms, verify 60 ms, host 20 ms
    slices = [event for event in events(small(), "X") if 200_000 <= event["ts"] < 300_000]
    assert [(event["name"], event["ts"], event["dur"]) for event in slices] == [
        ("step", 200_000.0, 100_000.0),
        ("draft", 200_000.0, 20_000.0),
        ("verify", 220_000.0, 60_000.0),
        ("host", 280_000.0, 20_000.0),
    ]


@pytest.mark.parametrize("run", [small, lambda: busy(30)])
def test_request_slices_are_balanced(run):
    open_slices: Counter = Counter()
    for event in trace(run())["traceEvents"]:
        if event["ph"] in "be":
            key = event["cat"], event["id"], event["name"]
            open_slices[key] += 1 if event["ph"] == "b" else -1
            assert open_slices[key] in (0, 1)
    assert set(open_slices.values()) == {0}


def test_request_is_divided_at_its_first_token():
    own = [event for event in events(small(), "b") if event["id"] == "3"]
    assert [(event["name"], event["ts"]) for event in own] == [
        ("request 3", 100_000.0),
        ("waiting and prefill", 100_000.0),
        ("decode", 400_000.0),
    ]


def test_rejection_is_an_instant_with_its_reason():
    (event,) = events(small(), "i")
    assert event["name"] == "request 2 rejected"
    assert event["args"] == {"reason": "prompt longer than the KV pool"}


def test_counters_fall_to_zero_while_idle():
    # between 0.1 s and 0.2 s the small run does nothing
    counts = [(event["ts"], event["args"]) for event in events(small(), "C") if event["name"] == "requests"]
    assert (100_000.0, {"running": 0, "waiting": 0}) in counts
