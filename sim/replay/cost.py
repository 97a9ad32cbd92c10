"""What one forward pass costs: one formula for any batch, fitted to measured points by `calibrate.fit`.

    seconds = correction(num_seqs, new_tokens / num_seqs)
              * (linear(new_tokens) + read(kv_tokens) + a * query_key_pairs + c * num_seqs)

    new_tokens       sum of q_i: rows of every matrix product (weights are read once, so small passes cost the same)
    kv_tokens        sum of L_i + q_i: keys and values read from memory, what decoding waits for
    query_key_pairs  sum of q_i * L_i + q_i * (q_i + 1) / 2: attention arithmetic, what long prefills wait for
    num_seqs         sequences in the pass

for sequences with L_i tokens in the cache and q_i new ones. Only sums enter, so a ragged batch, or prefill chunks that
ride with decodes, cost no more to look up than an even one. `linear` and `read` are piecewise linear and never fall:
kernels have kinks (tiles, split-K, occupancy) that a straight line misses by a third. The host's own time per engine
step is not in here; it is `HostCost`, charged once per step however many passes the step makes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from traces.errors import InputError

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


def _figure(value: object, name: str) -> float:
    """A finite figure >= 0, or one line that names the field."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{name}: expected a finite number >= 0, got {value!r}")
    return float(value)


def _figures(values: object, name: str) -> tuple[float, ...]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise InputError(f"{name}: expected a list of numbers, got {values!r}")
    return tuple(_figure(value, f"{name}[{i}]") for i, value in enumerate(values))


def _rising(values: tuple[float, ...], name: str) -> None:
    if any(b <= a for a, b in pairwise(values)):
        raise InputError(f"{name}: expected increasing numbers, got {list(values)}")


@dataclass(frozen=True)
class Knots:
    """A piecewise-linear function that never falls: flat below the first knot, the last slope goes on above the last.

    `x` rises, `y` does not fall; both finite and >= 0, of equal length. Raises InputError otherwise.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    _slope: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _arrays: tuple[FloatArray, FloatArray, FloatArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        x, y = _figures(self.x, "x"), _figures(self.y, "y")
        if len(x) != len(y):
            raise InputError(f"y: expected {len(x)} values, one for each x, got {len(y)}")
        _rising(x, "x")
        if any(b < a for a, b in pairwise(y)):
            raise InputError(f"y: a larger pass cannot cost less, got {list(y)}")
        slope = tuple((y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(len(x) - 1))
        slope += slope[-1:] or (0.0,)
        for name, value in (("x", x), ("y", y), ("_slope", slope)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_arrays", (np.array(x), np.array(y), np.array(slope)))

    def at(self, x: float) -> float:
        """The value at one point."""
        i = bisect_right(self.x, x) - 1
        if i < 0:
            return self.y[0]
        return self.y[i] + self._slope[i] * (x - self.x[i])

    def at_many(self, x: Array) -> FloatArray:
        """The values at an array of points, of its shape; the same arithmetic as `at`."""
        knots, values, slopes = self._arrays
        x = np.maximum(x, knots[0])
        i = knots.searchsorted(x, side="right") - 1
        result: FloatArray = values[i] + slopes[i] * (x - knots[i])
        return result


@dataclass(frozen=True)
class Correction:
    """A factor over (num_seqs, query tokens per sequence), bilinear between nodes, 1 beyond the last node of each axis.

    `factor[i][j]` belongs to `num_seqs[i]` and `query_tokens[j]`. The last row and the last column must be 1: a ratio
    that was measured inside the grid says nothing outside it. Factors are > 0. Raises InputError otherwise.
    """

    num_seqs: tuple[float, ...]
    query_tokens: tuple[float, ...]
    factor: tuple[tuple[float, ...], ...]
    _arrays: tuple[FloatArray, FloatArray, FloatArray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seqs, query = _figures(self.num_seqs, "num_seqs"), _figures(self.query_tokens, "query_tokens")
        _rising(seqs, "num_seqs")
        _rising(query, "query_tokens")
        rows = tuple(_figures(row, f"factor[{i}]") for i, row in enumerate(self.factor))
        if len(seqs) < 2 or len(query) < 2 or len(rows) != len(seqs) or any(len(row) != len(query) for row in rows):
            raise InputError(f"factor: expected {len(seqs)} x {len(query)} values, at least 2 x 2")
        if any(value == 0 for row in rows for value in row):
            raise InputError("factor: expected numbers > 0, got 0")
        if any(value != 1 for value in rows[-1]) or any(row[-1] != 1 for row in rows):
            raise InputError("factor: the last row and column must be 1, so that it fades out beyond the grid")
        for name, value in (("num_seqs", seqs), ("query_tokens", query), ("factor", rows)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_arrays", (np.array(seqs), np.array(query), np.array(rows)))

    def at(self, num_seqs: float, query_tokens: float) -> float:
        """The factor for one pass."""
        xs, ys = self.num_seqs, self.query_tokens
        if num_seqs >= xs[-1] or query_tokens >= ys[-1]:
            return 1.0
        i, j = max(bisect_right(xs, num_seqs) - 1, 0), max(bisect_right(ys, query_tokens) - 1, 0)
        u = max((num_seqs - xs[i]) / (xs[i + 1] - xs[i]), 0.0)
        v = max((query_tokens - ys[j]) / (ys[j + 1] - ys[j]), 0.0)
        low, high = self.factor[i], self.factor[i + 1]
        first = low[j] + v * (low[j + 1] - low[j])
        second = high[j] + v * (high[j + 1] - high[j])
        return first + u * (second - first)

    def at_many(self, num_seqs: Array, query_tokens: Array) -> FloatArray:
        """The factors for arrays of passes; the same arithmetic as `at`."""
        xs, ys, f = self._arrays
        i, u = _cell(xs, num_seqs)
        j, v = _cell(ys, query_tokens)
        low, high = f[i, j], f[i + 1, j]
        first = low + v * (f[i, j + 1] - low)
        second = high + v * (f[i + 1, j + 1] - high)
        result: FloatArray = first + u * (second - first)
        return result


def _cell(nodes: FloatArray, at: Array) -> tuple[npt.NDArray[np.intp], FloatArray]:
    """The cell each point falls in and how far along it is; points beyond the last node sit on it."""
    inside = np.minimum(np.maximum(at, nodes[0]), nodes[-1])
    i = np.minimum(nodes.searchsorted(inside, side="right") - 1, len(nodes) - 2)
    return i, (inside - nodes[i]) / (nodes[i + 1] - nodes[i])


@dataclass(frozen=True)
class MeasuredRange:
    """The largest batch the cost was measured on; what lies beyond is extrapolated, and should be counted.

    Raises InputError unless all three are finite, or none is, which means that nothing is extrapolated.
    """

    new_tokens: float = math.inf
    kv_tokens: float = math.inf
    num_seqs: float = math.inf

    def __post_init__(self) -> None:
        if len({math.isinf(value) for value in (self.new_tokens, self.kv_tokens, self.num_seqs)}) > 1:
            raise InputError(f"measured: expected three finite numbers or none, got {self}")


@dataclass(frozen=True)
class ForwardCost:
    """The cost in seconds of one forward pass of one model on its GPUs. The formula is at the head of this file.

    linear   seconds over new tokens; its first value, the cost of the smallest pass, must be > 0
    read     seconds over KV tokens read; its first value should be 0 at 0
    per_query_key_pair_s, per_seq_s   seconds, >= 0
    correction      None: no correction
    capture_sizes   CUDA-graph sizes in tokens: up to the largest, new tokens are rounded up to the next one (the engine
                    pads to it, so it pays for it); empty: no padding, as in eager mode
    measured        the range of the measured points

    Raises InputError, naming the field, if a figure is not finite and >= 0 or the cost could be 0.
    """

    linear: Knots
    read: Knots = Knots((0.0,), (0.0,))
    per_query_key_pair_s: float = 0.0
    per_seq_s: float = 0.0
    correction: Correction | None = None
    capture_sizes: tuple[int, ...] = ()
    measured: MeasuredRange = MeasuredRange()
    _capture: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _figure(self.per_query_key_pair_s, "per_query_key_pair_s")
        _figure(self.per_seq_s, "per_seq_s")
        if self.linear.y[0] <= 0:
            raise InputError(f"linear: the smallest pass must cost more than 0 s, got {self.linear.y[0]!r}")
        sizes = _figures(self.capture_sizes, "capture_sizes") if self.capture_sizes else ()
        _rising(sizes, "capture_sizes")
        object.__setattr__(self, "_capture", np.array(sizes))

    @classmethod
    def affine(
        cls,
        base_s: float,
        per_token_s: float = 0.0,
        per_kv_token_s: float = 0.0,
        per_query_key_pair_s: float = 0.0,
        per_seq_s: float = 0.0,
    ) -> ForwardCost:
        """A cost by hand: `base_s` plus a price for each new token, KV token, query-key pair and sequence."""
        return cls(
            linear=Knots((0.0, 1.0), (base_s, base_s + per_token_s)),
            read=Knots((0.0, 1.0), (0.0, per_kv_token_s)),
            per_query_key_pair_s=per_query_key_pair_s,
            per_seq_s=per_seq_s,
        )

    @overload
    def seconds(  # type: ignore[overload-overlap]  # numbers in, a number out; any array in, an array out
        self, new_tokens: float, kv_tokens: float, query_key_pairs: float, num_seqs: float
    ) -> float: ...

    @overload
    def seconds(
        self,
        new_tokens: Array | float,
        kv_tokens: Array | float,
        query_key_pairs: Array | float,
        num_seqs: Array | float,
    ) -> FloatArray: ...

    def seconds(
        self,
        new_tokens: Array | float,
        kv_tokens: Array | float,
        query_key_pairs: Array | float,
        num_seqs: Array | float,
    ) -> float | FloatArray:
        """Seconds of one pass (four numbers: about a microsecond), or of many (arrays that broadcast together).

        A pass without new tokens costs 0. Both ways give the same figure to within rounding.
        """
        if (
            isinstance(new_tokens, np.ndarray)
            or isinstance(kv_tokens, np.ndarray)
            or isinstance(query_key_pairs, np.ndarray)
            or isinstance(num_seqs, np.ndarray)
        ):
            return self._seconds_of_many(new_tokens, kv_tokens, query_key_pairs, num_seqs)
        if new_tokens <= 0:
            return 0.0
        sizes = self.capture_sizes
        padded = sizes[bisect_left(sizes, new_tokens)] if sizes and new_tokens <= sizes[-1] else new_tokens
        plain = (
            self.linear.at(padded)
            + self.read.at(kv_tokens)
            + self.per_query_key_pair_s * query_key_pairs
            + self.per_seq_s * num_seqs
        )
        if self.correction is None:
            return plain
        return self.correction.at(num_seqs, new_tokens / num_seqs) * plain

    def _seconds_of_many(
        self,
        new_tokens: Array | float,
        kv_tokens: Array | float,
        query_key_pairs: Array | float,
        num_seqs: Array | float,
    ) -> FloatArray:
        n, kv, pairs, seqs = (
            np.asarray(a, dtype=np.float64) for a in (new_tokens, kv_tokens, query_key_pairs, num_seqs)
        )
        padded = n
        if self.capture_sizes:
            sizes = self._capture
            nearest = np.minimum(np.searchsorted(sizes, n, side="left"), len(sizes) - 1)
            padded = np.where(n <= sizes[-1], sizes[nearest], n)
        plain = (
            self.linear.at_many(padded)
            + self.read.at_many(kv)
            + self.per_query_key_pair_s * pairs
            + self.per_seq_s * seqs
        )
        if self.correction is not None:
            plain = self.correction.at_many(seqs, n / np.maximum(seqs, 1.0)) * plain
        return np.where(n > 0, plain, 0.0)

    def outside(self, new_tokens: float, kv_tokens: float, num_seqs: float) -> bool:
        """Whether this pass is larger than any that was measured. The caller counts; the cost is extrapolated."""
        largest = self.measured
        return new_tokens > largest.new_tokens or kv_tokens > largest.kv_tokens or num_seqs > largest.num_seqs

    def to_dict(self) -> dict[str, Any]:
        """The cost as JSON values, exact to the last bit; `from_dict` reads it back."""
        document: dict[str, Any] = {
            "linear": {"new_tokens": _whole(self.linear.x), "s": list(self.linear.y)},
            "read": {"kv_tokens": _whole(self.read.x), "s": list(self.read.y)},
            "per_query_key_pair_s": self.per_query_key_pair_s,
            "per_seq_s": self.per_seq_s,
            "correction": None,
            "capture_sizes": list(self.capture_sizes),
            "measured": None,
        }
        if self.correction is not None:
            document["correction"] = {
                "num_seqs": _whole(self.correction.num_seqs),
                "query_tokens": _whole(self.correction.query_tokens),
                "factor": [list(row) for row in self.correction.factor],
            }
        if self.measured != MeasuredRange():
            document["measured"] = dict(
                zip(_MEASURED, _whole(getattr(self.measured, n) for n in _MEASURED), strict=True)
            )
        return document

    @classmethod
    def from_dict(cls, document: Mapping[str, Any], where: str = "cost") -> ForwardCost:
        """Read what `to_dict` wrote. Raises InputError that starts with `where` and names the field."""
        try:
            correction, measured = document.get("correction"), document.get("measured")
            return cls(
                linear=_knots(document, "linear", "new_tokens"),
                read=_knots(document, "read", "kv_tokens"),
                per_query_key_pair_s=_figure(document.get("per_query_key_pair_s"), "per_query_key_pair_s"),
                per_seq_s=_figure(document.get("per_seq_s"), "per_seq_s"),
                correction=None if correction is None else _correction(correction),
                capture_sizes=tuple(int(size) for size in document.get("capture_sizes") or ()),
                measured=MeasuredRange() if measured is None else _measured(measured),
            )
        except InputError as error:
            raise InputError(f"{where}: {error}") from None


_MEASURED = ("new_tokens", "kv_tokens", "num_seqs")


def _whole(values: Iterable[float]) -> list[float]:
    """Counts as they are read: 64, not 64.0."""
    return [int(value) if float(value).is_integer() else value for value in values]


def _section(document: object, name: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping) or any(key not in document for key in keys):
        raise InputError(f"{name}: expected an object with {', '.join(keys)}, got {document!r:.60}")
    return document


def _knots(document: Mapping[str, Any], name: str, over: str) -> Knots:
    section = _section(document.get(name), name, (over, "s"))
    try:
        return Knots(_figures(section[over], over), _figures(section["s"], "s"))
    except InputError as error:
        raise InputError(f"{name}.{error}") from None


def _correction(document: object) -> Correction:
    section = _section(document, "correction", ("num_seqs", "query_tokens", "factor"))
    try:
        return Correction(
            num_seqs=_figures(section["num_seqs"], "num_seqs"),
            query_tokens=_figures(section["query_tokens"], "query_tokens"),
            factor=tuple(_figures(row, f"factor[{i}]") for i, row in enumerate(section["factor"])),
        )
    except InputError as error:
        raise InputError(f"correction.{error}") from None


def _measured(document: object) -> MeasuredRange:
    section = _section(document, "measured", _MEASURED)
    return MeasuredRange(*(_figure(section[name], f"measured.{name}") for name in _MEASURED))


@dataclass(frozen=True)
class HostCost:
    """Time per engine step that no kernel accounts for: scheduling, input preparation, sampling, detokenisation.

    base_s per step plus per_seq_s for each running sequence. It is charged once per engine step. Raises InputError.
    """

    base_s: float
    per_seq_s: float
    provenance: str

    def __post_init__(self) -> None:
        _figure(self.base_s, "host.base_s")
        _figure(self.per_seq_s, "host.per_seq_s")

    def seconds(self, num_seqs: float) -> float:
        """Seconds of host time for one engine step over `num_seqs` sequences."""
        return self.base_s + self.per_seq_s * num_seqs
