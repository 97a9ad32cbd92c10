"""From measured rows to the cost of both models: visits combined, drift, the fit, and its errors on held-out points."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate import fit
from calibrate.forward import REFERENCE, Row
from sim.replay.cost import ForwardCost
from traces.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

FOLDS = 5
DRIFT_LIMIT = 0.05
EVEN_LIMIT, EVEN_TOKENS = 1.2, 16  # passes that differ by less in time though by more in tokens were not waited for
POINT = ("model", "phase", "num_seqs", "query_tokens", "context_tokens")
COLUMNS = (*POINT, "seconds", "p10", "p90", "repeats")


@dataclass(frozen=True)
class Drift:
    """How the reference point moved while the grid was measured.

    relative   largest minus smallest of its thirds' medians (by order of measurement), over the median of all
    flagged    whether that is more than `DRIFT_LIMIT`
    """

    relative: float
    visits: int

    @property
    def flagged(self) -> bool:
        """More than a fit can be trusted to."""
        return self.relative > DRIFT_LIMIT

    def __str__(self) -> str:
        said = f"reference point moved by {100 * self.relative:.1f} % over {self.visits} visits"
        return f"DRIFT: {said}; measure again on a quieter machine" if self.flagged else said


@dataclass(frozen=True)
class Costs:
    """Fitted costs of the two models, seconds; `draft` is None where no rows of a draft were given.

    residuals   model -> "held_out", "all" and each phase -> points, median, p95, worst absolute percent; "held_out" is
                of points that the fit did not see, the others are of the final fit over all points. Beside
                them "spread": median over the points of (p90 - p10) / median of the repeats, and of the largest minus
                the smallest visit over the median, both in percent: what no fit can beat
    worst       model -> the points that the fit misses by most, in words
    """

    target: ForwardCost
    draft: ForwardCost | None
    residuals: dict[str, dict[str, Any]]
    worst: dict[str, tuple[str, ...]]


def combine(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row for each point, the median over its visits, the columns of `forward.parquet`; reference visits apart.

    p10 and p90 are medians over the visits too, widened to the range of the visits' own medians.
    """
    import pandas as pd

    found = [[*point, *_combined(visits)] for point, visits in _by_point(rows).items()]
    return pd.DataFrame(found, columns=list(COLUMNS)).sort_values(list(POINT), ignore_index=True)


def drift(rows: Iterable[Mapping[str, Any]]) -> Drift:
    """Of the reference point. Raises InputError if it was never measured."""
    reference = sorted((row for row in rows if row["phase"] == REFERENCE), key=lambda row: int(row["visit"]))
    if not reference:
        raise InputError("forward costs: no visit of the reference point")
    seconds = np.array([row["seconds"] for row in reference])
    thirds = [np.median(part) for part in np.array_split(seconds, min(3, len(seconds)))]
    return Drift(float((max(thirds) - min(thirds)) / np.median(seconds)), len(seconds))


def remarks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What makes the measurement doubtful, one line each: drift, and launch times in place of passes."""
    found = [str(moved)] if (moved := drift(rows)).flagged else []
    for model, own in combine(rows).groupby("model", sort=False):
        tokens, seconds = own["num_seqs"] * own["query_tokens"], own["seconds"]
        if tokens.max() >= EVEN_TOKENS * tokens.min() and seconds.max() < EVEN_LIMIT * seconds.min():
            found.append(
                f"{model}: passes of {tokens.min()} to {tokens.max()} tokens all take {1e3 * seconds.median():.3g} ms: "
                "the device was not waited for, or launching kernels is all they cost"
            )
    return found


def fit_costs(rows: Sequence[Mapping[str, Any]], *, capture_sizes: Sequence[int] = ()) -> Costs:
    """Fit `sim.replay.cost` to the rows of "target" and "draft". Deterministic.

    Held out: each fifth of the points in turn, those at the ends of the grid (in new tokens or KV tokens) excepted, for
    a fit that does not reach them would be asked to extrapolate. Raises InputError if there are no rows of the target.
    """
    frame = combine(rows)
    costs: dict[str, ForwardCost] = {}
    residuals: dict[str, dict[str, Any]] = {}
    worst: dict[str, tuple[str, ...]] = {}
    for model, own in frame.groupby("model", sort=False):
        points = _points(own)
        fitted = fit.fit(points, capture_sizes=capture_sizes)
        name = str(model)
        costs[name], worst[name] = fitted.cost, fitted.worst
        residuals[name] = {phase: asdict(found) for phase, found in fitted.residuals.items()}
        error = _held_out(points, capture_sizes)
        if error is not None:
            residuals[name]["held_out"] = asdict(error)
        residuals[name]["spread"] = _spread([row for row in rows if row["model"] == model])
    if "target" not in costs:
        raise InputError("forward costs: no measured pass of the target")
    return Costs(costs["target"], costs.get("draft"), residuals, worst)


def scaled(few: Sequence[Row], more: Sequence[Row], layers: tuple[int, int], wanted: int) -> list[Row]:
    """Rows of a model with `wanted` layers from those of the same shape with two smaller numbers of layers.

    Layers are alike, so that a pass costs t(n1) + (wanted - n1) * (t(n2) - t(n1)) / (n2 - n1), for each point on its
    own; p10 and p90 likewise. Points measured in one of the two alone are left out. Noise grows with
    (wanted - n1) / (n2 - n1). Raises InputError unless n1 < n2.
    """
    first, second = layers
    if not first < second:
        raise InputError(f"scaling over layers: expected two rising numbers of layers, got {first} and {second}")
    factor = (wanted - first) / (second - first)
    small, large = combine(few).set_index(list(POINT)), combine(more).set_index(list(POINT))
    both = small.index.intersection(large.index)
    rows: list[Row] = []
    for point in both:
        low, high = small.loc[point], large.loc[point]
        seconds = {n: float(low[n] + factor * max(high[n] - low[n], 0.0)) for n in ("seconds", "p10", "p90")}
        repeats = int(min(low["repeats"], high["repeats"]))
        rows.append(dict(zip(POINT, point, strict=True)) | {"visit": 0, **seconds, "repeats": repeats})
    return rows


def _by_point(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["phase"] != REFERENCE:
            found[tuple(row[name] for name in POINT)].append(row)
    return found


def _combined(visits: Sequence[Mapping[str, Any]]) -> tuple[float, float, float, int]:
    medians = [float(row["seconds"]) for row in visits]
    p10, p90 = (float(np.median([row[name] for row in visits])) for name in ("p10", "p90"))
    repeats = sum(int(row["repeats"]) for row in visits)
    # a slow pass is repeated once a visit, and has no spread but that between visits
    return float(np.median(medians)), min(p10, *medians), max(p90, *medians), repeats


def _points(frame: pd.DataFrame) -> fit.Points:
    """Passes of one model as the fit takes them."""
    parts = [
        fit.Points.even(str(phase), own["num_seqs"], own["query_tokens"], own["context_tokens"], own["seconds"])
        for phase, own in frame.groupby("phase", sort=False)
    ]
    return fit.Points.concat(parts)


def _held_out(points: fit.Points, capture_sizes: Sequence[int]) -> fit.Residuals | None:
    """Each fifth of the points in turn against a fit to the others; None if no point lies inside the grid."""
    inner = np.ones(len(points), dtype=bool)
    for column in (points.new_tokens, points.kv_tokens):
        inner &= (column > column.min()) & (column < column.max())
    part = np.random.default_rng(0).permutation(len(points)) % FOLDS
    missed = []
    for fold in range(FOLDS):
        left_out = inner & (part == fold)
        if left_out.any():
            own = _subset(points, left_out)
            cost = fit.fit(_subset(points, ~left_out), capture_sizes=capture_sizes).cost
            missed.append(100 * np.abs(fit.predicted(own, cost) / own.seconds - 1))
    if not missed:
        return None
    error = np.concatenate(missed)
    median, p95 = np.percentile(error, [50, 95])
    return fit.Residuals(len(error), *(round(float(value), 2) for value in (median, p95, error.max())))


def _subset(points: fit.Points, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> fit.Points:
    columns = (points.new_tokens, points.kv_tokens, points.query_key_pairs, points.num_seqs, points.seconds)
    return fit.Points(points.phase[chosen], *(column[chosen] for column in columns))


def _spread(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    groups = _by_point(rows).values()
    repeats = [float(np.median([(row["p90"] - row["p10"]) / row["seconds"] for row in visits])) for visits in groups]
    between = []
    for visits in groups:
        seconds = np.array([row["seconds"] for row in visits])
        between.append(float(np.ptp(seconds) / np.median(seconds)))
    return {
        "repeats_percent": round(100 * float(np.median(repeats)), 2),
        "visits_percent": round(100 * float(np.median(between)), 2),
    }
