"""Planning and measuring passes, on models that only advance a clock: no test sleeps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")

    from calibrate import costs, forward
    from calibrate.forward import Plan, key_of, points_to_measure
    from calibrate.grid import Extent, Point, candidates
    from calibrate.timing import Timer, wall_stopwatch
    from sim.replay.cost import ForwardCost

EXTENT = Extent(max_num_seqs=16, max_model_len=256, max_prefill_tokens=128)
COST = ForwardCost.affine(0.004, 2e-4, 1e-6, 1e-8, 5e-5)
SMALL = ForwardCost.affine(0.001, 2e-5, 1e-7, 1e-9, 5e-6)


class Clock:
    """What a stub machine shows; a pass number `calls` takes `slower(calls)` times as long as it should."""

    def __init__(self, slower: Callable[[int], float] = lambda _: 1.0) -> None:
        self.now, self.calls, self.slower = 0.0, 0, slower

    def read(self) -> float:
        return self.now


class Stub:
    """A model runner whose passes cost what a formula says."""

    needs_hidden = False
    device, dtype, vocab_size, max_num_seqs = torch.device("cpu"), torch.float32, 50, EXTENT.max_num_seqs

    def __init__(self, cost: ForwardCost, clock: Clock, largest_tokens: int = 10**9) -> None:
        self.cost, self.clock, self.largest_tokens = cost, clock, largest_tokens
        self.slab = SimpleNamespace(keys={}, values={})

    def copy(self, source: int, to: Any) -> None:
        pass

    def forward(self, tokens: Any, slots: Any, context: Any, **_: Any) -> None:
        rows, query = tokens.shape
        if tokens.numel() > self.largest_tokens:
            raise torch.OutOfMemoryError("out of memory")
        cached = int(context[0])
        pairs = rows * (query * cached + query * (query + 1) / 2)
        seconds = self.cost.seconds(rows * query, rows * (cached + query), pairs, rows)
        self.clock.now += seconds * self.clock.slower(self.clock.calls)
        self.clock.calls += 1


def pair(clock: Clock, **settings: Any) -> dict[str, Any]:
    return {"target": Stub(COST, clock, **settings), "draft": Stub(SMALL, clock)}


def timers(clock: Clock) -> dict[str, Timer]:
    return {name: Timer(wall_stopwatch(clock=clock.read)) for name in ("target", "draft")}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    clock = Clock()
    monkeypatch.setattr(forward.Timer, "of", lambda _, **s: Timer(wall_stopwatch(clock=clock.read), **s))
    return points_to_measure(pair(clock), EXTENT, budget_s=600)


def measured(plan: Plan, clock: Clock, say: Any = lambda _: None, **settings: Any) -> list[Any]:
    return list(forward.measure(plan, pair(clock, **settings), timers=timers(clock), clock=clock.read, say=say))


def test_the_grid_stays_inside_its_extent() -> None:
    for _, point in candidates("target", (1, 2, 5), EXTENT):
        assert point.num_seqs <= 16
        assert point.context_tokens + point.query_tokens <= 256
        assert point.phase != "prefill" or point.new_tokens <= 128


def test_the_grid_has_prefill_with_and_without_context() -> None:
    chunks = [point for level, point in candidates("target", (1,), EXTENT) if point.phase == "prefill" and level == 0]
    assert {point.context_tokens > 0 for point in chunks} == {True, False}


def test_a_slow_machine_still_gets_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of a millisecond: the 30 cheapest passes of each model, and a note for each of what is left out."""
    clock = Clock()
    monkeypatch.setattr(forward.Timer, "of", lambda _, **s: Timer(wall_stopwatch(clock=clock.read), **s))
    plan = points_to_measure(pair(clock), EXTENT, budget_s=0.001)
    assert len(plan.points) >= 60
    assert len(plan.notes) == 2
    assert costs.fit_costs(measured(plan, clock)).residuals["target"]["all"]["median_percent"] < 1


def test_a_plan_survives_json(plan: Plan) -> None:
    import json

    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_every_point_is_visited_three_times(plan: Plan) -> None:
    seen = [entry for wave in plan.waves() for entry in wave if entry[0] != plan.reference]
    assert sorted(seen) == sorted((point, visit) for point in plan.points for visit in range(3))


def test_the_order_is_shuffled(plan: Plan) -> None:
    """F62: in the first wave no run of ten visits goes up in size all the way."""
    sizes = [point.kv_tokens for point, _ in next(plan.waves())]
    rising = np.diff(sizes) >= 0
    assert not any(rising[i : i + 9].all() for i in range(len(rising) - 9))


def test_the_budget_is_kept(plan: Plan) -> None:
    """A fifth of the time that all waves would take, and never more than it but for the first wave."""
    clock = Clock()
    whole = len(measured(plan, clock))
    shorter = Plan(**{**vars(plan), "budget_s": clock.now / 5})
    clock = Clock()
    assert 0 < len(measured(shorter, clock)) < whole
    assert clock.now < 1.05 * max(shorter.budget_s, 1e-9)


def test_what_is_done_is_not_measured_again(plan: Plan) -> None:
    rows = measured(plan, Clock())
    done = {key_of(row) for row in rows[:100]}
    clock = Clock()
    rest = list(forward.measure(plan, pair(clock), timers=timers(clock), clock=clock.read, done=done))
    assert {key_of(row) for row in rest} == {key_of(row) for row in rows[100:]}


def test_out_of_memory_leaves_larger_passes_out(plan: Plan) -> None:
    said: list[str] = []
    rows = measured(plan, Clock(), said.append, largest_tokens=100)
    largest = max(row["num_seqs"] * row["query_tokens"] for row in rows if row["model"] == "target")
    assert largest <= 100
    assert said
    assert said[0].startswith("out of memory: target with")


def test_the_fit_finds_the_formula(plan: Plan) -> None:
    """Without noise the points follow one formula, which `fit` can say."""
    found = costs.fit_costs(measured(plan, Clock()))
    assert found.residuals["target"]["held_out"]["median_percent"] < 1
    assert found.residuals["draft"]["held_out"]["median_percent"] < 1
    assert found.target.seconds(8, 8 * 101, 8 * 101, 8) == pytest.approx(COST.seconds(8, 808, 808, 8), rel=0.02)


def test_a_slow_start_does_not_reach_the_costs(plan: Plan) -> None:
    """F62: 30 % slower for the first 50 calls touches one of three visits of a point."""
    quiet = costs.combine(measured(plan, Clock()))
    slow = costs.combine(measured(plan, Clock(lambda call: 1.3 if call < 50 else 1.0)))
    assert (slow["seconds"] / quiet["seconds"]).max() < 1.05


def test_steady_drift_is_flagged_with_its_size(plan: Plan) -> None:
    """F62: 1 to 1.3 over the run; medians of the outer thirds are 1.05 and 1.25, of all 1.15: 17 %."""
    whole = Clock()
    measured(plan, whole)
    found = costs.drift(measured(plan, Clock(lambda call: 1 + 0.3 * call / whole.calls)))
    assert found.flagged
    assert found.relative == pytest.approx(0.2 / 1.15, abs=0.03)


def test_a_quiet_machine_is_not_flagged(plan: Plan) -> None:
    assert costs.remarks(measured(plan, Clock())) == []


def test_launch_times_are_remarked() -> None:
    """F57: 1 and 512 tokens at 50 us each were not waited for."""
    rows = [row("decode", 1, 1, 0, 5e-5), row("prefill", 1, 512, 0, 5e-5), row("reference", 1, 1, 0, 5e-5)]
    assert "the device was not waited for" in costs.remarks(rows)[0]


def row(phase: str, num_seqs: int, query: int, visit: int, seconds: float) -> dict[str, Any]:
    shape = {"num_seqs": num_seqs, "query_tokens": query, "context_tokens": 64}
    spread = {"seconds": seconds, "p10": 0.9 * seconds, "p90": 1.2 * seconds, "repeats": 4}
    return {"model": "target", "phase": phase, **shape, "visit": visit, **spread}


def test_visits_are_combined_by_their_median() -> None:
    """Of 1, 9 and 2 s it is 2 s; p10 and p90 are the visits' range, wider than their own 1.8 and 2.4; 12 repeats."""
    frame = costs.combine([row("decode", 1, 1, visit, seconds) for visit, seconds in enumerate((1.0, 9.0, 2.0))])
    assert list(frame.columns) == list(costs.COLUMNS)
    assert frame.loc[0, ["seconds", "p10", "p90", "repeats"]].tolist() == pytest.approx([2.0, 1.0, 9.0, 12])


def test_layers_are_extrapolated() -> None:
    """3 + 2 L seconds: 7 at 2 layers, 11 at 4, and 163 at 80."""
    few, more = [row("decode", 1, 1, 0, 7.0)], [row("decode", 1, 1, 0, 11.0)]
    assert costs.scaled(few, more, (2, 4), 80)[0]["seconds"] == pytest.approx(163.0)


def test_a_point_is_hashable_and_counts_tokens() -> None:
    """3 sequences of 5 new tokens on 10: 15 new, 3 * 15 read."""
    point = Point("target", "verify", 3, 5, 10)
    assert (point.new_tokens, point.kv_tokens) == (15, 45)
