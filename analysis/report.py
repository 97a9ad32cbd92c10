"""A sweep as one HTML page that a person would send to a colleague: findings, figures, provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis import page
from analysis.acceptance import acceptance_by_depth, acceptance_by_task, signal_against_acceptance
from analysis.findings import METRIC, Comparison, comparison, findings
from analysis.frame import SETTINGS, good, need, varying
from analysis.gain import speed_up
from analysis.intervals import estimate
from analysis.lengths import k_distribution, k_over_time
from analysis.load import latency, pareto, regret
from analysis.replay import replay
from analysis.shares import straggler_and_waste, time_split
from analysis.style import draw, named
from analysis.timeline import timeline_of_steps
from sim.replay.sources import acceptance_source
from sim.style import picture
from traces.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing = tuple[Callable[..., "Axes"], Any, dict[str, Any], str]
"""A figure function, its data, its options and the caption."""
MOST_SETTINGS = 6
"""Of more than so many combinations of settings the rest is named, not drawn."""


def report(frame: pd.DataFrame, source: Path | None = None, rerun: bool = True) -> str:
    """The page. The same frame gives the same bytes.

    source  file that the frame was read from: its name and digest go into the page
    rerun   simulate a few runs again for the figures that need their steps
    """
    need(frame, "report", "policy", "seed", "request_rate")
    runs = good(frame)
    settings = list(_settings(runs))
    body = [page.heading(2, "Findings")]
    for title, own in settings or [("", runs)]:
        body += [page.heading(3, title)] if title else []
        body.append(page.bullets(findings(own)))
    if failed := _failures(frame):
        body += [page.heading(3, f"{len(frame) - len(runs):,} of {len(frame):,} runs failed"), page.bullets(failed)]
    number = 1
    for title, own in settings[:MOST_SETTINGS]:
        drawn, missing = _draw(_drawings(own, rerun))
        body.append(page.heading(2, f"Figures: {title}" if title else "Figures"))
        body += [page.pictures(drawn, number), _numbers(own)]
        body += [page.details(f"{len(missing)} figures not drawn", page.bullets(missing, "small"))] if missing else []
        number += len(drawn)
    if len(settings) > MOST_SETTINGS:
        names = [title for title, _ in settings[MOST_SETTINGS:]]
        body += [
            page.paragraph(f"Not drawn: {len(names)} more combinations of settings."),
            page.bullets(names, "small"),
        ]
    body += [page.heading(2, "Provenance"), *_provenance(frame, runs, source)]
    return page.page(_title(runs), _lead(frame, runs), body)


def _settings(runs: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Groups that differ in more than policy, rate and seed, each with what it is; one without a name if none do."""
    names = varying(runs, "request_rate")
    if runs.empty or not names:
        yield from [("", runs)] if len(runs) else []
        return
    parts = [name.replace("_", " ") + " " + runs[name].map(_shown) for name in names]
    labels = pd.Series([", ".join(each) for each in zip(*parts, strict=True)], runs.index)
    for label in dict.fromkeys(labels):
        yield str(label), runs[labels == label]


def _drawings(runs: pd.DataFrame, rerun: bool) -> Iterator[Drawing | str]:
    """What can be drawn of the runs of one setting; a text says what cannot, and why."""
    yield latency, runs, {"metric": METRIC}, "Mean time per output token against the offered load; lower is better."
    yield latency, runs, {"metric": "p99_ttft_ms"}, "Time to first token, 99th percentile, queueing included."
    yield (
        pareto,
        runs,
        {},
        "What throughput costs in latency: each line runs through the rates; down and right is better.",
    )
    yield speed_up, runs, {}, "Times as fast as plain decoding when everyone drafts k tokens; the line is break-even."
    yield regret, runs, {}, "Distance to the policy that knows which tokens will be accepted, on the same requests."
    yield (
        straggler_and_waste,
        runs,
        {},
        "What is lost: draft slots that wait for the longest draft, and rejected tokens.",
    )
    yield time_split, runs, {}, "Parts of the busy time, over all rates."
    yield acceptance_by_depth, runs, {}, "Chance that a draft token is accepted if all before it were."
    found = comparison(runs)
    if rerun and found is not None:
        yield from _of_runs(found)
    yield from _of_windows(runs)


def _of_runs(found: Comparison) -> Iterator[Drawing | str]:
    try:
        rate, again = replay(found)
    except InputError as error:
        yield f"the figures of single runs: {error}"
        return
    where = f"at request rate {rate}, first seed"
    drafting = {label: run for label, run in again.items() if run.metrics["spec_decode_proposed_tokens"]}
    if drafting:
        best = next(iter(drafting))
        yield k_over_time, drafting[best], {}, f"Draft lengths of {best} {where}: between the lines, slots that wait."
        yield k_distribution, drafting, {"among": found.series}, f"How often each draft length was chosen, {where}."
    yield timeline_of_steps, again, {}, f"Some steps {where}: what a step is made of, and how deep it drafts."


def _of_windows(runs: pd.DataFrame) -> Iterator[Drawing | str]:
    name, rate = (runs[column].iloc[0] if column in runs else None for column in ("acceptance", "acceptance_rate"))
    try:
        windows = acceptance_source(str(name))
    except InputError as error:
        yield f"acceptance by task, and signals: {error}"
        return
    if rate is not None and np.isfinite(rate):
        windows = windows.tilted(float(rate))
    yield acceptance_by_task, windows, {}, f"Recorded acceptance ({windows.name}), {windows.kind}."
    if windows.on and len(windows.accept) > 1:
        yield (
            signal_against_acceptance,
            windows,
            {},
            "What tells beforehand that a draft token will be accepted, and how well.",
        )


def _draw(drawings: Iterator[Drawing | str]) -> tuple[list[page.Picture], list[str]]:
    """Pictures, and why others are not there."""
    drawn, missing = [], []
    for each in drawings:
        if isinstance(each, str):
            missing.append(each)
            continue
        function, data, options, caption = each
        try:
            svg = picture(lambda f=function, d=data, o=options: draw(f, d, **o), "svg").decode()  # type: ignore[misc]
            drawn.append(page.Picture(svg, caption))
        except InputError as error:
            missing.append(str(error))
    return drawn, missing


def _numbers(runs: pd.DataFrame) -> str:
    """The main figure as a table, for those who want digits."""
    found = comparison(runs)
    if found is None or METRIC not in runs:
        return ""
    rows = []
    for series in found.series:
        cells = [
            estimate(found.cells[series, rate][METRIC] if (series, rate) in found.cells else [])
            for rate in found.rates.settings
        ]
        rows.append([series, *(_cell(cell.mean, cell.high) for cell in cells)])
    title = f"Table: {named(METRIC)} (with 95 % interval over seeds), by request rate"
    return page.details(title, page.table(["policy", *found.rates.names], rows))


def _cell(mean: float, high: float) -> str:
    if not np.isfinite(mean):
        return "–"
    return f"{mean:.2f}" + (f" ± {high - mean:.2f}" if np.isfinite(high) else "")


def _failures(frame: pd.DataFrame) -> list[str]:
    """Each error once, with how many runs had it."""
    errors = frame["error"].dropna() if "error" in frame else pd.Series(dtype=object)
    return [f"{count:,} runs: {text}" for text, count in errors.value_counts(sort=False).items()]


def _title(runs: pd.DataFrame) -> str:
    if runs.empty:
        return "Draft lengths: no run ended well"
    parts = {name: list(dict.fromkeys(runs[name].dropna())) for name in ("target", "draft", "trace") if name in runs}
    short = {name: values[0].rpartition("/")[2] for name, values in parts.items() if len(values) == 1}
    if {"target", "draft"} <= short.keys():
        return f"Draft lengths for {short['target']} with {short['draft']}" + (
            f", {short['trace']} traffic" if "trace" in short else ""
        )
    return "Draft lengths: which policy should serve"


def _lead(frame: pd.DataFrame, runs: pd.DataFrame) -> str:
    words = {"policy": "policy", "request_rate": "rate", "seed": "seed"}
    counts = ", ".join(_count(runs[name].map(str).nunique(), word) for name, word in words.items())
    return f"{_count(len(frame), 'run')} of draftlab, a simulator: {counts}. Where the figures come from is at the end."


def _count(number: int, word: str) -> str:
    many = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{number:,} {word if number == 1 else many}"


def _provenance(frame: pd.DataFrame, runs: pd.DataFrame, source: Path | None) -> Iterator[str]:
    """What is measured, modelled, sampled and synthetic, over all runs; then the settings and what computed them."""
    abouts = [about for about in runs["provenance"] if about] if "provenance" in runs else []
    pairs = [(kind, "; ".join(_union(abouts, kind))) for kind in ("measured", "modelled", "sampled", "synthetic")]
    if "profile" in runs and "profile_digest" in runs:
        costs = runs["profile"].astype(str) + " (" + runs["profile_digest"].astype(str).str[:12] + ")"
        pairs.append(("cost profile", ", ".join(dict.fromkeys(costs))))
    pairs += [
        ("versions", ", ".join(dict.fromkeys(" ".join(f"{k} {v}" for k, v in a["versions"].items()) for a in abouts)))
    ]
    if source is not None:
        pairs.append(
            ("table", f"{source.name}, {len(frame):,} rows, sha256 {hashlib.sha256(source.read_bytes()).hexdigest()}")
        )
    yield page.terms((name, text) for name, text in pairs if text)
    if notes := _union(abouts, "notes"):
        yield page.heading(3, "Notes")
        yield page.bullets(notes, "small")
    names = [name for name in SETTINGS if name in runs]
    values = {name: list(dict.fromkeys(map(_shown, runs[name]))) for name in names}
    chosen = [(name.replace("_", " "), ", ".join(found)) for name, found in values.items() if found not in ([""], [])]
    varied = ", ".join(name.replace("_", " ") for name in names if len(values[name]) > 1)
    if chosen:
        yield page.details(f"All settings{f' ({varied} vary)' if varied else ''}", page.terms(chosen))


def _union(abouts: Sequence[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(text for about in abouts for text in about.get(key) or ()))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | np.ndarray):
        return " ".join(map(str, value))
    return "" if value is None or pd.isna(value) else f"{value:g}" if isinstance(value, float) else str(value)
