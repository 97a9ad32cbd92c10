"""A calibration directory in figures: who, where, what a pass costs, where speculation pays, what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrate import acceptance, payoff
from sim.replay import windows as replay_windows
from sim.replay.profile import Profile
from sim.replay.windows import Windows
from traces.errors import InputError
from traces.parquet import read_parquet

if TYPE_CHECKING:
    import pandas as pd

PROFILE, COST, POINTS = "profile.json", "cost.json", "forward.parquet"
POINT_COLUMNS = ("model", "phase", "num_seqs", "query_tokens", "context_tokens", "seconds", "p10", "p90", "repeats")
QUERIES = (1, 2, 3, 5, 9, 17)  # k = 0, 1, 2, 4, 8, 16
MOST_BATCHES = 9
UNMEASURED_BATCHES, UNMEASURED_CONTEXT = (1, 2, 4, 8, 16, 32, 64, 128), 128
DSDE_CORRELATIONS = {"draft_entropy": -0.339, "mean KLD before": -0.164, "WVIR before": 0.128}
"""With acceptance at T = 0 for Llama-3.1-70B with a 1B draft, as DSDE reports them (arXiv 2509.01083)."""


@dataclass(frozen=True)
class Calibration:
    """What a directory holds; None for a part that is not there, which `missing` says."""

    directory: Path
    profile: Profile | None
    points: pd.DataFrame | None
    windows: Windows | None
    missing: tuple[str, ...]


def read(directory: Path) -> Calibration:
    """Read all parts that are there. Raises InputError for a part that is broken, and where there is none at all."""
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory; python -m calibrate --output DIR writes one")
    absent = [name for name in (PROFILE, COST, POINTS, replay_windows.FILE) if not (directory / name).is_file()]
    if len(absent) == 4:
        raise InputError(f"{directory}: holds no calibration; expected {', '.join(absent)}")
    profile = None if {PROFILE, COST} & set(absent) else Profile.load(directory)
    points = None if POINTS in absent else _points(directory / POINTS)
    windows = None if replay_windows.FILE in absent else replay_windows.load(directory)
    return Calibration(directory, profile, points, windows, tuple(_loss(absent)))


def figures(found: Calibration, context_tokens: int | None = None) -> dict[str, Any]:
    """All figures as JSON values, None for a part that is not there; costs at `context_tokens`, or the typical ones."""
    lengths = acceptance.acceptance_lengths(found.windows) if found.windows else None
    context = context_tokens if context_tokens is not None else typical_context(found.points)
    return {
        "directory": str(found.directory),
        "missing": list(found.missing),
        "profile": _profile(found.profile) if found.profile else None,
        "measured_points": _counts(found.points) if found.points is not None else None,
        "costs": _costs(found.profile, found.points, context, lengths) if found.profile else None,
        "acceptance": _acceptance(found.windows, lengths) if found.windows and lengths else None,
    }


def typical_context(points: pd.DataFrame | None) -> int:
    """The context with most decode and verify points of the target; of several the middle one."""
    if points is None or not len(own := _decoding(points, "target")):
        return UNMEASURED_CONTEXT
    contexts, count = np.unique(own["context_tokens"], return_counts=True)
    most = contexts[count == count.max()]
    return int(most[len(most) // 2])


def batches(profile: Profile, points: pd.DataFrame | None) -> list[int]:
    """Numbers of sequences to show: measured ones, thinned, the smallest and the largest among them."""
    seqs = np.unique(_decoding(points, "target")["num_seqs"]).astype(int) if points is not None else np.zeros(0, int)
    if not len(seqs):
        return [b for b in UNMEASURED_BATCHES if b <= profile.target.measured.num_seqs] or [1]
    chosen = np.unique(np.linspace(0, len(seqs) - 1, min(len(seqs), MOST_BATCHES)).round().astype(int))
    return [int(seqs[i]) for i in chosen]


def _points(path: Path) -> pd.DataFrame:
    frame = read_parquet(path)
    if lacking := [name for name in POINT_COLUMNS if name not in frame]:
        raise InputError(f"{path}: column {lacking[0]} is missing; expected {', '.join(POINT_COLUMNS)}")
    return frame


def _decoding(points: pd.DataFrame, model: str) -> pd.DataFrame:
    return points[(points["model"] == model) & points["phase"].isin(["decode", "verify"])]


def _loss(absent: Sequence[str]) -> list[str]:
    """What cannot be shown, in words."""
    lost = {
        PROFILE: "no pair, device, costs or hints",
        COST: "no costs, residuals or hints",
        POINTS: "no measured points",
        replay_windows.FILE: "no acceptance; hints go by costs alone",
    }
    return [f"{name} is missing: {lost[name]}" for name in absent]


def _profile(profile: Profile) -> dict[str, Any]:
    plain = (
        "name",
        "device",
        "device_memory_bytes",
        "engine",
        "draft_kind",
        "num_kv_blocks",
        "block_size",
        "kv_tokens",
    )
    facts = ("git_revision", "date", "digest")
    return {
        **{name: getattr(profile, name) for name in plain},
        "target_model": asdict(profile.target_model),
        "draft_model": asdict(profile.draft_model),
        "host": asdict(profile.host),
        "provenance": dict(profile.provenance),
        "versions": dict(profile.versions),
        **{name: getattr(profile, name) for name in facts},
        "residuals": dict(profile.residuals),
    }


def _counts(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Points of each model and phase, and the median of p90 - p10 over the median time."""
    spread = 100 * (points["p90"] - points["p10"]) / points["seconds"]
    rows = []
    for model in dict.fromkeys(points["model"]):
        of_model = points["model"] == model
        for phase in ("all", *dict.fromkeys(points["phase"][of_model])):
            own = spread[of_model & ((points["phase"] == phase) | (phase == "all"))]
            percent = round(float(own.median()), 2)
            rows.append({"model": model, "phase": phase, "points": len(own), "p10_to_p90_percent": percent})
    return rows


def _costs(
    profile: Profile, points: pd.DataFrame | None, context: int, lengths: Sequence[float] | None
) -> dict[str, Any]:
    seqs = batches(profile, points)
    queries = [q for q in QUERIES if q <= (_largest_query(points) or profile.target.measured.new_tokens)] or [1]
    depths = range(1, len(lengths) + 1) if lengths else [q - 1 for q in queries if q > 1]
    return {
        "context_tokens": context,
        "passes": [payoff.passes(profile, b, queries, context) for b in seqs],
        "speculation": [payoff.speculation(profile, b, depths, context, lengths) for b in seqs],
    }


def _largest_query(points: pd.DataFrame | None) -> int | None:
    own = _decoding(points, "target") if points is not None else None
    return int(own["query_tokens"].max()) if own is not None and len(own) else None


def _acceptance(windows: Windows, lengths: Sequence[float]) -> dict[str, Any]:
    accepted, reached = acceptance.by_depth(windows)
    mean, error = acceptance.mean_acceptance(windows)
    return {
        "kind": windows.kind,
        "trajectories": len(windows.start),
        "windows": len(windows.accept),
        "depth": windows.depth,
        "notes": list(windows.notes),
        "digest": windows.digest,
        "mean_acceptance": mean,
        "standard_error": error,
        "accepted_at_depth": accepted,
        "accepted_if_reached": reached,
        "acceptance_length": list(lengths),
        "tasks": {task: _task(windows, task) for task in dict.fromkeys(windows.task)},
        "correlations": acceptance.correlations(windows),
        "dsde_correlations": DSDE_CORRELATIONS,
    }


def _task(windows: Windows, task: str) -> dict[str, Any]:
    own = acceptance.of_task(windows, task)
    mean, error = acceptance.mean_acceptance(own)
    return {
        "trajectories": len(own.start),
        "windows": len(own.accept),
        "mean_acceptance": mean,
        "standard_error": error,
        "accepted_if_reached": acceptance.by_depth(own)[1],
        "acceptance_length": acceptance.acceptance_lengths(own),
    }
