"""Forward passes of a pair, measured over a grid: coarse waves first, shuffled, visited several times.

Every point of a wave is visited in each of several rounds, in an order that is shuffled by seed, so that a slow minute
of the machine touches one visit of many points and not all of one (F62); the row of a point is the median over its
visits. A reference point is timed over and over in between: what it drifts by is reported. Waves follow each other,
ever finer, as long as the time budget allows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls

from calibrate.grid import DRAFT_QUERIES, VERIFY_QUERIES, Extent, Point, candidates, ordered
from calibrate.memory import is_out_of_memory
from calibrate.runner import ModelRunner
from calibrate.timing import Thunk, Timer
from traces.errors import InputError

QUERIES = {"target": VERIFY_QUERIES, "draft": DRAFT_QUERIES}
REFERENCE = "reference"
REFERENCE_EVERY = 12  # visits
VISITS = 3
WAVE = 40  # points; the first wave is twice as large, for it is all there may be
VISITS_WANTED = 450  # what the length of a visit is derived from
SHORTEST_VISIT_S, LONGEST_VISIT_S = 0.02, 1.0
LONGEST_PASS_SHARE = 0.004  # of the budget: slower passes are left out
FEWEST_POINTS = 30  # the cheapest that are measured whatever they cost: fewer say nothing of where the time goes

Row = dict[str, Any]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Plan:
    """What is measured, coarse first, within `budget_s`. Kept by the caller to go on after an interrupt.

    estimated_s   of one visit of each point, at most
    visit_s       what the repeats of one visit may take
    notes         what was left out and why
    """

    points: tuple[Point, ...]
    estimated_s: tuple[float, ...]
    reference: Point
    budget_s: float
    visit_s: float
    seed: int
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Plan:
        """Read what `to_dict` gave."""
        lists = {name: tuple(document[name]) for name in ("estimated_s", "notes")}
        points = tuple(Point(**point) for point in document["points"])
        return cls(**{**document, **lists, "points": points, "reference": Point(**document["reference"])})

    def waves(self) -> Iterator[list[tuple[Point, int]]]:
        """Wave after wave: points with the number of the visit, as they are measured; reference visits in between."""
        rng = np.random.default_rng(self.seed)
        references, start = 0, 0
        while start < len(self.points):
            wave = self.points[start : start + (2 * WAVE if start == 0 else WAVE)]
            visits = [(wave[i], v) for v in range(VISITS) for i in rng.permutation(len(wave))]
            result: list[tuple[Point, int]] = []
            for first in range(0, len(visits), REFERENCE_EVERY):
                result += [(self.reference, references), *visits[first : first + REFERENCE_EVERY]]
                references += 1
            yield result
            start += len(wave)


def key_of(row: Mapping[str, Any]) -> Key:
    """What tells a measured row from all others; `measure` skips the keys that are done."""
    return tuple(row[name] for name in ("model", "phase", "num_seqs", "query_tokens", "context_tokens", "visit"))


def points_to_measure(runners: Mapping[str, ModelRunner], extent: Extent, *, budget_s: float, seed: int = 0) -> Plan:
    """A grid for each runner ("target", "draft"); how far into it `measure` comes is a matter of time.

    A few passes of each model are timed first; passes slower than a 250th of the budget are left out, which the notes
    say. Raises InputError if the memory does not do for a pass of one token.
    """
    visit_s = min(max(budget_s / VISITS_WANTED, SHORTEST_VISIT_S), LONGEST_VISIT_S)
    longest_pass_s = LONGEST_PASS_SHARE * budget_s
    grid: list[tuple[int, Point]] = []
    visit_cost: dict[Point, float] = {}
    notes: list[str] = []
    for name, runner in runners.items():
        found = candidates(name, QUERIES[name], extent)
        estimate, timer = _estimate(runner, name, extent), Timer.of(runner.device)
        seconds = {point: estimate(point) for _, point in found}
        limit_s = max(longest_pass_s, sorted(seconds.values())[:FEWEST_POINTS][-1])
        affordable = [entry for entry in found if seconds[entry[1]] <= limit_s]
        if len(affordable) < len(found):
            notes.append(_left_out(name, found, affordable, limit_s))
        grid += affordable
        visit_cost |= {p: timer.warm_up * s + max(visit_s, s) for p, s in seconds.items()}
    points = tuple(ordered(grid, seed))
    first = "target" if "target" in runners else next(iter(runners))
    reference = Point(first, REFERENCE, min(extent.max_num_seqs, 4), 1, min(64, extent.max_model_len // 2))
    return Plan(points, tuple(visit_cost[p] for p in points), reference, budget_s, visit_s, seed, tuple(notes))


def measure(
    plan: Plan,
    runners: Mapping[str, ModelRunner],
    *,
    done: Collection[Key] = (),
    say: Callable[[str], None] = lambda _: None,
    timers: Mapping[str, Timer] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Row]:
    """Measure what is not done yet, one row for each visit: `Point` fields, visit, seconds, p10, p90, repeats.

    A wave starts if what is left of the budget does for it, going by how the earlier ones kept to their estimates; the
    first always does. When the memory does not do for a pass, it and all larger ones of that model are left out, and
    `say` is told.
    """
    done = set(done)
    timers = timers or {name: Timer.of(runner.device, budget_s=plan.visit_s) for name, runner in runners.items()}
    estimated = dict(zip(plan.points, plan.estimated_s, strict=True))
    too_large: dict[str, int] = {}
    started, before_s = clock(), 0.0
    for name in runners:
        fill(runners[name], plan.seed)
    for number, wave in enumerate(plan.waves()):
        todo = [(point, visit) for point, visit in wave if key_of(_row(point, visit)) not in done]
        wave_s = sum(estimated.get(point, plan.visit_s) for point, _ in todo)
        spent_s = clock() - started
        if number and todo and spent_s + wave_s * (spent_s / before_s if before_s else 1.0) > plan.budget_s:
            return
        before_s += wave_s
        for point, visit in todo:
            if point.new_tokens >= too_large.get(point.model, point.new_tokens + 1):
                continue
            try:
                timing = timers[point.model].measure(thunk(runners[point.model], point))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                too_large[point.model] = point.new_tokens
                say(
                    f"out of memory: {point.model} with {point.num_seqs} sequences of {point.query_tokens} new tokens; "
                    f"passes of {point.new_tokens} tokens and more are left out"
                )
                continue
            yield _row(point, visit) | {n: getattr(timing, n) for n in ("seconds", "p10", "p90", "repeats")}


def _row(point: Point, visit: int) -> Row:
    return {**dataclasses.asdict(point), "visit": visit}


def thunk(runner: ModelRunner, point: Point) -> Thunk:
    """The pass of a point, over random tokens."""
    generator = torch.Generator().manual_seed(0)
    rows, query = point.num_seqs, point.query_tokens
    tokens = torch.randint(runner.vocab_size, (rows, query), generator=generator).to(runner.device)
    slots, context = torch.arange(rows), torch.full((rows,), point.context_tokens)
    last = torch.full((rows,), query - 1, device=runner.device) if point.phase == "prefill" else None
    hidden = None
    if runner.needs_hidden:
        size = (rows, query, runner.model.config.hidden_size)
        hidden = torch.randn(size, generator=generator).to(runner.device, runner.dtype)
    return lambda: runner.forward(tokens, slots, context, hidden=hidden, logits_at=last)


def fill(runner: ModelRunner, seed: int) -> None:
    """Random keys and values in all slots: zeros draw less power on a GPU, whose clock then is higher."""
    generator = torch.Generator(device=runner.device).manual_seed(seed)
    for slab in (*runner.slab.keys.values(), *runner.slab.values.values()):
        slab[0].normal_(generator=generator)
    runner.copy(0, torch.arange(1, runner.max_num_seqs))


def _estimate(runner: ModelRunner, name: str, extent: Extent) -> Callable[[Point], float]:
    """Seconds of a pass from a few timed ones: affine in new tokens, KV tokens and query-key pairs."""
    seqs, context = extent.max_num_seqs, extent.max_model_len // 2
    chunk = min(extent.max_prefill_tokens, context)
    query = max(1, min(QUERIES[name][-1], context))
    probes = [
        Point(name, "decode", 1, 1, min(16, context)),
        Point(name, "decode", seqs, 1, min(16, context)),
        Point(name, "decode", seqs, 1, context),
        Point(name, "verify", max(1, seqs // 4), query, context),
        Point(name, "prefill", 1, chunk, context),
    ]
    timer = Timer.of(runner.device, budget_s=0.05, fewest=1)
    seconds, terms = [], []
    for probe in probes:
        try:
            seconds.append(timer.measure(thunk(runner, probe)).seconds)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if not seconds:
                raise InputError(f"{name}: no memory on {runner.device} for a pass of one token") from None
            break
        terms.append(_terms(probe))
    matrix = np.array(terms) / np.array(seconds)[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    solution, _ = nnls(matrix / scale, np.ones(len(seconds)))
    price = solution / scale
    return lambda point: float(price @ _terms(point))


def _terms(point: Point) -> np.ndarray[Any, np.dtype[np.float64]]:
    s, q, c = point.num_seqs, point.query_tokens, point.context_tokens
    return np.array([1.0, point.new_tokens, point.kv_tokens, s * (q * c + q * (q + 1) / 2)])


def _left_out(name: str, found: list[tuple[int, Point]], affordable: list[tuple[int, Point]], limit_s: float) -> str:
    kept = [point for _, point in affordable]
    return (
        f"{name}: {len(found) - len(kept)} of {len(found)} passes would take more than {limit_s:.2g} s and are "
        f"left out; the largest batch measured is {max(p.num_seqs for p in kept)} sequences, the longest "
        f"pass {max(p.new_tokens for p in kept)} tokens"
    )
