"""Measured forward passes to a `ForwardCost`: what both the calibrator and the silicon importer end in.

Non-negative least squares on relative error finds the plain formula: non-negative steps between knots make `linear` and
`read` isotonic, so noise that makes a larger batch look cheaper is averaged away. What the formula cannot say goes into
a smooth factor over (num_seqs, query tokens), if that pays; it is flattened where a larger batch would cost less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from sim.replay.cost import Correction, ForwardCost, Knots, MeasuredRange
from traces.errors import InputError

FloatArray = npt.NDArray[np.float64]

SMOOTHNESS = 0.02  # weight of the factor's second differences against squared log residuals of the points
PULL_TO_ONE = 0.002  # keeps the factor at 1 where no point was measured
MAX_TOKEN_KNOTS = 160  # while fitting; knots that a straight line replaces are dropped afterwards
SMALLEST_KV_KNOT = 8  # 2**8 tokens
KNOT_TOLERANCE = 0.005  # relative
FACTOR_GAIN = 0.15  # relative
GROWTH_SLACK = 0.02  # where the factor is used, a batch that grows by a quarter may become this much cheaper


@dataclass(frozen=True)
class Points:
    """Measured passes, one array element each. All of one length; seconds > 0. Raises InputError otherwise.

    phase            what kind of pass it was, for the report of residuals: decode, verify, prefill, mixed, ...
    new_tokens, kv_tokens, query_key_pairs, num_seqs   as in `sim.replay.cost`
    seconds          median time of the pass
    """

    phase: npt.NDArray[np.str_]
    new_tokens: FloatArray
    kv_tokens: FloatArray
    query_key_pairs: FloatArray
    num_seqs: FloatArray
    seconds: FloatArray

    def __post_init__(self) -> None:
        if len({len(column) for column in self._columns()} | {len(self.phase)}) != 1 or not len(self.phase):
            raise InputError("points: expected columns of one length, at least one point")
        if not all(np.isfinite(column).all() for column in self._columns()) or (self.seconds <= 0).any():
            raise InputError("points: expected finite numbers and seconds > 0")

    def _columns(self) -> tuple[FloatArray, ...]:
        return self.new_tokens, self.kv_tokens, self.query_key_pairs, self.num_seqs, self.seconds

    def __len__(self) -> int:
        return len(self.phase)

    @classmethod
    def even(cls, phase: str, num_seqs: Any, query_tokens: Any, context_tokens: Any, seconds: Any) -> Points:
        """Passes in which every sequence has the same query and the same context (tokens already in the cache)."""
        s, q, context, t = np.broadcast_arrays(
            *(np.asarray(a, dtype=np.float64) for a in (num_seqs, query_tokens, context_tokens, seconds))
        )
        return cls(
            phase=np.full(t.shape, phase).ravel(),
            new_tokens=(s * q).ravel(),
            kv_tokens=(s * (context + q)).ravel(),
            query_key_pairs=(s * (q * context + q * (q + 1) / 2)).ravel(),
            num_seqs=s.ravel(),
            seconds=t.ravel(),
        )

    @classmethod
    def concat(cls, parts: Iterable[Points]) -> Points:
        """Several sets of passes as one."""
        parts = list(parts)
        return cls(
            np.concatenate([p.phase for p in parts]),
            *map(np.concatenate, zip(*(p._columns() for p in parts), strict=True)),
        )


@dataclass(frozen=True)
class Residuals:
    """Absolute percent between fitted and measured seconds."""

    points: int
    median_percent: float
    p95_percent: float
    worst_percent: float


@dataclass(frozen=True)
class Fit:
    """A fitted cost, its residuals over all points (`"all"`) and by phase, and the worst points in words."""

    cost: ForwardCost
    residuals: dict[str, Residuals]
    worst: tuple[str, ...]


def fit(points: Points, *, correct: bool | None = None, capture_sizes: Sequence[int] = ()) -> Fit:
    """Fit the cost of one model to its measured passes. Deterministic.

    correct         with the factor over (num_seqs, query tokens), without it, or (None) with it where it pays: it must
                    take `FACTOR_GAIN` off the root mean square error, for it costs time in every look-up
    capture_sizes   kept in the cost; measure the passes at those sizes
    """
    token_knots = _thinned(np.unique(points.new_tokens), MAX_TOKEN_KNOTS)
    kv_knots = _doublings(float(points.kv_tokens.max()))
    plain = _plain(points, token_knots, kv_knots, np.ones(len(points)))
    cost = plain
    if correct is not False:
        grid = _Grid.over(points)
        correction = grid.correction(points, cost)
        for _ in range(2):  # the formula and the factor settle against each other
            factor = correction.at_many(points.num_seqs, points.new_tokens / points.num_seqs)
            cost = _plain(points, token_knots, kv_knots, factor)
            correction = grid.correction(points, cost)
        cost = dataclasses.replace(cost, correction=correction)
        if correct is None and _rms(points, cost) > (1 - FACTOR_GAIN) * _rms(points, plain):
            cost = plain
    largest = MeasuredRange(*(float(c.max()) for c in (points.new_tokens, points.kv_tokens, points.num_seqs)))
    cost = rounded(dataclasses.replace(cost, capture_sizes=tuple(capture_sizes), measured=largest))
    return Fit(cost, residuals(points, cost), worst(points, cost))


def _rms(points: Points, cost: ForwardCost) -> float:
    return float(np.sqrt(np.mean((predicted(points, cost) / points.seconds - 1) ** 2)))


def predicted(points: Points, cost: ForwardCost) -> FloatArray:
    """What `cost` says for the measured passes, in seconds."""
    return cost.seconds(points.new_tokens, points.kv_tokens, points.query_key_pairs, points.num_seqs)


def residuals(points: Points, cost: ForwardCost) -> dict[str, Residuals]:
    """Absolute percent of `predicted` against the measured seconds, for all points and for each phase."""
    error = 100 * np.abs(predicted(points, cost) / points.seconds - 1)

    def summary(chosen: npt.NDArray[np.bool_]) -> Residuals:
        e = error[chosen]
        median, p95 = np.percentile(e, [50, 95])
        return Residuals(len(e), round(float(median), 2), round(float(p95), 2), round(float(e.max()), 2))

    phases = dict.fromkeys(points.phase.tolist())
    return {"all": summary(error >= 0)} | {phase: summary(points.phase == phase) for phase in phases}


def worst(points: Points, cost: ForwardCost, count: int = 5) -> tuple[str, ...]:
    """The points the cost misses by most, one line each."""
    seconds = predicted(points, cost)
    error = 100 * (seconds / points.seconds - 1)
    return tuple(
        f"{points.phase[i]}: {points.num_seqs[i]:g} sequences, {points.new_tokens[i]:g} new tokens, "
        f"{points.kv_tokens[i]:g} KV tokens: measured {1e3 * points.seconds[i]:.3f} ms, "
        f"fitted {1e3 * seconds[i]:.3f} ms ({error[i]:+.1f} %)"
        for i in np.argsort(-np.abs(error), kind="stable")[:count]
    )


def rounded(cost: ForwardCost, digits: int = 4) -> ForwardCost:
    """The same cost with figures of `digits` significant digits: files stay small and differences readable."""

    def short(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(float(f"{value:.{digits}g}") for value in values)

    correction = cost.correction
    if correction is not None:
        factor = tuple(tuple(round(value, 3) for value in row) for row in correction.factor)
        correction = dataclasses.replace(correction, factor=factor)
    return dataclasses.replace(
        cost,
        linear=Knots(cost.linear.x, short(cost.linear.y)),
        read=Knots(cost.read.x, short(cost.read.y)),
        per_query_key_pair_s=short([cost.per_query_key_pair_s])[0],
        per_seq_s=short([cost.per_seq_s])[0],
        correction=correction,
    )


def _thinned(values: FloatArray, count: int) -> FloatArray:
    """At most `count` of the rising `values`, spread evenly in their logarithm, first and last included."""
    if len(values) <= count:
        return values
    wanted = np.geomspace(values[0], values[-1], count)
    return np.unique(values[np.abs(np.log(values)[None, :] - np.log(wanted)[:, None]).argmin(axis=1)])


def _doublings(largest: float) -> FloatArray:
    """0, powers of two and `largest`, rising: where KV reads bend is a matter of scale."""
    powers = np.exp2(np.arange(SMALLEST_KV_KNOT, max(np.ceil(np.log2(largest)), SMALLEST_KV_KNOT)))
    return np.concatenate(([0.0], powers, [largest]))


def _steps(x: FloatArray, knots: FloatArray) -> FloatArray:
    """(points, knots - 1): how far each x has gone through each stretch between knots; the last goes on for ever."""
    upper = np.append(knots[1:-1], np.inf)
    return np.clip(x[:, None], knots[:-1], upper) - knots[:-1]


def _plain(points: Points, token_knots: FloatArray, kv_knots: FloatArray, factor: FloatArray) -> ForwardCost:
    """The formula without its factor: least squares of relative error, every coefficient and step >= 0."""
    columns = [
        np.ones((len(points), 1)),
        _steps(points.new_tokens, token_knots),
        _steps(points.kv_tokens, kv_knots),
        points.query_key_pairs[:, None],
        points.num_seqs[:, None],
    ]
    weight = _phase_weight(points)
    matrix = np.hstack(columns) * (weight * factor / points.seconds)[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    q, r = np.linalg.qr(matrix / scale)  # the same least squares over as many rows as there are columns
    solution, _ = nnls(r, q.T @ weight, maxiter=100 * matrix.shape[1])
    base, linear, read, tail = np.split(solution / scale, np.cumsum([c.shape[1] for c in columns[:3]]))
    linear_s = base[0] + np.concatenate(([0.0], np.cumsum(linear * np.diff(token_knots))))
    read_s = np.concatenate(([0.0], np.cumsum(read * np.diff(kv_knots))))
    # nnls may give the whole cost to other terms; the smallest pass still takes time
    linear_s = np.maximum(linear_s, 1e-3 * points.seconds.min())
    kept = _needed(token_knots, linear_s)
    return ForwardCost(
        linear=Knots(tuple(token_knots[kept].tolist()), tuple(linear_s[kept].tolist())),
        read=Knots(tuple(kv_knots.tolist()), tuple(read_s.tolist())),
        per_query_key_pair_s=float(tail[0]),
        per_seq_s=float(tail[1]),
    )


def _phase_weight(points: Points) -> FloatArray:
    """Weights that lift phases with few points half of the way to counting as much as those with many."""
    _, phase, count = np.unique(points.phase, return_inverse=True, return_counts=True)
    weight: FloatArray = (len(points) / (len(count) * count)) ** 0.25
    return weight[phase]


def _needed(x: FloatArray, y: FloatArray) -> npt.NDArray[np.intp]:
    """Indices of the knots without which a straight line would be off by more than the tolerance (Douglas-Peucker)."""
    kept = {0, len(x) - 1}
    stretches = [(0, len(x) - 1)]
    while stretches:
        first, last = stretches.pop()
        if last - first < 2:
            continue
        inner = slice(first + 1, last)
        off = np.abs(np.interp(x[inner], x[[first, last]], y[[first, last]]) / y[inner] - 1)
        if off.max() > KNOT_TOLERANCE:
            middle = first + 1 + int(off.argmax())
            kept.add(middle)
            stretches += [(first, middle), (middle, last)]
    return np.array(sorted(kept))


@dataclass(frozen=True)
class _Grid:
    """Nodes of the factor; the last node of each axis is where it has faded to 1."""

    num_seqs: FloatArray
    query_tokens: FloatArray

    @classmethod
    def over(cls, points: Points) -> _Grid:
        """Powers of four of sequences, of about three of query tokens, over what was measured, and one beyond."""
        seqs = 4.0 ** np.arange(0, np.ceil(np.log(points.num_seqs.max()) / np.log(4)) + 1)
        query = np.array([1, 2, 4, 8, 17, 64, 256, 1024, 4096, 16384], dtype=np.float64)
        largest = (points.new_tokens / points.num_seqs).max()
        query = query[: np.searchsorted(query, largest) + 1]
        return cls(np.append(seqs, 4 * seqs[-1]), np.append(query, 4 * query[-1]))

    def weights(self, num_seqs: FloatArray, query_tokens: FloatArray) -> FloatArray:
        """(points, nodes): the bilinear weights; a row sums to 1."""
        rows, columns = len(self.num_seqs), len(self.query_tokens)
        result = np.zeros((len(num_seqs), rows, columns))
        at = np.arange(len(num_seqs))
        i, u = _cell(self.num_seqs, num_seqs)
        j, v = _cell(self.query_tokens, query_tokens)
        for di, wi in ((0, 1 - u), (1, u)):
            for dj, wj in ((0, 1 - v), (1, v)):
                result[at, i + di, j + dj] += wi * wj
        return result.reshape(len(num_seqs), rows * columns)

    def correction(self, points: Points, cost: ForwardCost) -> Correction:
        """The smooth factor that best explains measured / plain seconds, as far as costs go on rising with it."""
        rows, columns = len(self.num_seqs), len(self.query_tokens)
        free = np.outer(np.arange(rows) < rows - 1, np.arange(columns) < columns - 1).ravel()
        data = self.weights(points.num_seqs, points.new_tokens / points.num_seqs)[:, free]
        wanted = np.log(points.seconds / predicted(points, cost))
        bends = _second_differences(rows, columns)[:, free]
        normal = data.T @ data / len(points) + SMOOTHNESS * bends.T @ bends / len(bends)
        normal += PULL_TO_ONE * np.eye(len(normal)) / len(normal)
        target = data.T @ wanted / len(points)

        growth, bound = self._growth(points, cost)
        growth, bound = growth[:, free], bound - GROWTH_SLACK
        log_factor = np.linalg.solve(normal, target)
        violated = np.zeros(len(bound), dtype=bool)
        for _ in range(20):  # where a larger batch would cost less, hold it level
            now = growth @ log_factor < bound - 1e-6
            if not (now & ~violated).any():
                break
            violated |= now
            held = growth[violated]
            log_factor = np.linalg.solve(normal + 10 * held.T @ held, target + 10 * held.T @ bound[violated])
        shrink = next(k for k in np.linspace(1, 0, 21) if (growth @ (k * log_factor) >= bound - 1e-3).all())
        factor = np.ones(rows * columns)
        factor[free] = np.exp(shrink * log_factor)
        return Correction(
            num_seqs=tuple(self.num_seqs.tolist()),
            query_tokens=tuple(self.query_tokens.tolist()),
            factor=tuple(map(tuple, factor.reshape(rows, columns).tolist())),
        )

    def _growth(self, points: Points, cost: ForwardCost) -> tuple[FloatArray, FloatArray]:
        """Rows r and bounds b: if r @ log_factor >= b for all, a batch that grows never costs less.

        A batch grows by more query tokens, by more sequences like those it has, or by sequences with one new token.
        """
        between = [np.unique(np.concatenate((n, (n[:-1] + n[1:]) / 2))) for n in (self.num_seqs, self.query_tokens)]
        s, q = (a.ravel() for a in np.meshgrid(between[0][:-1], between[1][:-1], indexing="ij"))
        inside = s * q <= 2 * points.new_tokens.max()
        s, q = s[inside], q[inside]
        more_s = np.maximum(s * 1.25, s + 1)
        larger = [(s, np.maximum(q * 1.25, q + 1 / s)), (more_s, q), (more_s, (s * q + more_s - s) / more_s)]
        here = self.weights(s, q)
        rows, bounds = [], []
        for s_, q_ in larger:
            gains = []
            for context in (0.0, 1024.0, 8192.0):
                added = np.maximum(s_ * q_ - s * q, 0)
                small = cost.seconds(s * q, s * (context + q), s * q * (context + q / 2), s)
                large = cost.seconds(s_ * q_, s_ * context + s_ * q_, s * q * (context + q / 2) + added * context, s_)
                gains.append(np.log(large / small))
            rows.append(self.weights(s_, q_) - here)
            bounds.append(-np.min(gains, axis=0))
        return np.concatenate(rows), np.concatenate(bounds)


def _cell(nodes: FloatArray, at: FloatArray) -> tuple[npt.NDArray[np.intp], FloatArray]:
    inside = np.clip(at, nodes[0], nodes[-1])
    i = np.clip(np.searchsorted(nodes, inside, side="right") - 1, 0, len(nodes) - 2)
    return i, (inside - nodes[i]) / (nodes[i + 1] - nodes[i])


def _second_differences(rows: int, columns: int) -> FloatArray:
    """One row for each inner node of each line of the grid: left - 2 * here + right."""
    index = np.arange(rows * columns).reshape(rows, columns)
    lines = [*index, *index.T]
    triples = np.array([line[k : k + 3] for line in lines for k in range(len(line) - 2)])
    result = np.zeros((len(triples), rows * columns))
    result[np.arange(len(triples))[:, None], triples] = [1.0, -2.0, 1.0]
    return result
