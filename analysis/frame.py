"""Results frames: one row per run, settings and figures under the names of results.json; and runs, one at a time.

Where the frame of a sweep comes from: `sim.sweep.read(directory)`. `frame_of` makes the same from runs in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sim.config import OUTPUTS, SimConfig
from sim.policies import default_cap, default_rule
from sim.results import RESULTS, Results, SavedResults, plain, read_results
from traces.errors import InputError

SETTINGS = tuple(each.name for each in fields(SimConfig) if each.name not in OUTPUTS | {"baseline"})
POLICY = ("policy", "cap", "acceptance_rule")
"""What makes a series, with every other setting that varies; the rate is an axis and seeds are repetitions."""

LISTS = (
    "spec_decode_per_position_acceptance_rates",
    "spec_decode_per_position_conditional_acceptance_rates",
)
HEAD = {"backend", "model_id", *SETTINGS}
"""What results.json has beside the figures."""


def frame_of(runs: Iterable[Results | SavedResults]) -> pd.DataFrame:
    """The results frame of runs in memory or read back."""
    return pd.DataFrame([_row(run) for run in runs])


def _row(run: Results | SavedResults) -> dict[str, Any]:
    config, metrics = plain(run.config), plain(run.metrics)
    about = plain(run.provenance)
    row = {"error": None} | {name: config.get(name) for name in SETTINGS}
    row["goodput"] = list(config.get("goodput") or ())
    row["request_rate_rps"] = metrics.get("offered_rate")
    row |= {name: value for name, value in metrics.items() if name not in HEAD and _fits(name, value)}
    return row | {name: about.get(name) for name in ("profile_digest", "target", "draft")} | {"provenance": about}


def _fits(name: str, value: Any) -> bool:
    return name in LISTS or not isinstance(value, list | dict)


def read_frame(directory: Path) -> pd.DataFrame:
    """The frame of a sweep's directory, of a run's, or of one that holds the directories of runs.

    Raises InputError where it is none of them.
    """
    if (directory / "runs.parquet").exists() or (directory / "runs.jsonl").exists():
        from sim.sweep import read

        frame: pd.DataFrame = read(directory)
        return frame
    found = sorted(path.parent for path in [*directory.glob(RESULTS), *directory.glob(f"*/{RESULTS}")])
    if not found:
        raise InputError(f"{directory}: neither runs.parquet of a sweep nor results.json of a run in it")
    return frame_of(read_results(each) for each in found)


def good(frame: pd.DataFrame) -> pd.DataFrame:
    """The runs that ended well."""
    return frame[frame["error"].isna()] if "error" in frame else frame


def need(frame: pd.DataFrame, figure: str, *columns: str) -> None:
    """Raises InputError where columns are missing."""
    missing = [name for name in columns if name not in frame]
    if missing:
        raise InputError(
            f"{figure}: the frame has no column {', '.join(missing)} (it has {len(frame.columns)} columns)"
        )


def varying(frame: pd.DataFrame, *axes: str) -> list[str]:
    """Settings, other than policy and seed, with more than one value at one place of the axes.

    A setting that follows an axis, say a number of requests for each rate, does not vary.
    """
    known = [name for name in SETTINGS if name in frame and name not in (*POLICY, "seed", *axes)]
    if frame.empty:
        return []
    place = frame[list(axes)].map(_text).agg(" ".join, axis=1) if axes else pd.Series("", frame.index)
    return [name for name in known if frame[name].map(_text).groupby(place).nunique().max() > 1]


def _text(value: Any) -> str:
    return json.dumps(plain(value), default=str)


def with_series(frame: pd.DataFrame, *axes: str) -> pd.DataFrame:
    """The good runs with a column `series`, the label of each: policy, and what else sets runs apart but `axes`.

    Cap and acceptance rule are named where they are not the policy's own or vary for the policy.
    """
    runs = good(frame)
    labels = runs["policy"].astype(str)
    for name, own in (("cap", default_cap), ("acceptance_rule", default_rule)):
        if name in runs:
            several = runs.groupby("policy")[name].transform("nunique") > 1
            other = np.array([value != _own(own, spec) for spec, value in zip(runs["policy"], runs[name], strict=True)])
            word = "cap" if name == "cap" else "rule"
            labels = labels.where(~(several | other), labels + f", {word} " + runs[name].astype(str))
    for name in varying(runs, *axes):
        labels = labels + f" | {name.replace('_', ' ')} " + runs[name].astype(str)
    return runs.assign(series=labels)


def _own(default: Any, spec: str) -> str | None:
    try:
        value: str = default(spec)
    except InputError:  # a policy of the user's that cannot be imported here
        return None
    return value


def only_one(runs: pd.DataFrame, figure: str, *axes: str) -> None:
    """Raises InputError where runs differ in more than policy, seed and `axes`: the figure has no room for it."""
    names = varying(runs, *axes)
    if names:
        count = runs[names[0]].map(_text).nunique()
        raise InputError(
            f"{figure}: {names[0]} has {count} values in the frame; choose one, as in frame[frame.{names[0]} == ...]"
        )


def steps_of(run: Results | SavedResults | pd.DataFrame, figure: str) -> pd.DataFrame:
    """The steps of a run. Raises InputError where it was saved without them."""
    frame = run if isinstance(run, pd.DataFrame) else run.steps_frame() if isinstance(run, Results) else run.steps
    if frame is None:
        raise InputError(f"{figure}: the run was saved without its steps; save it with --save-detailed")
    return frame


def runs_of(data: Any) -> dict[str, Any]:
    """One run or several by name, as several by name."""
    return dict(data) if isinstance(data, Mapping) else {"": data}
