"""python -m calibrate show DIR: prints a calibration, as a table, JSON or a figure."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from calibrate.summary import figures, read
from sim.table import number, percent
from traces.command import parse
from traces.errors import InputError

SHOWN_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
SHOWN_TASK_LENGTHS = (1, 2, 4, 8)
SHOWN_BREAK_EVEN = (1, 2, 4, 8)

Cells = Sequence[str]


def main(arguments: Sequence[str] | None = None) -> None:
    """Raises InputError for a wrong command line and for a directory that cannot be shown."""
    options = parse(Show, "calibrate show", str(Show.__doc__), arguments)
    if options.context_tokens is not None and options.context_tokens < 0:
        raise InputError(f"--context-tokens {options.context_tokens}: expected a whole number of at least 0")
    if options.plot is not None:
        from sim.plot import check_path

        check_path(options.plot)
    found = read(options.directory)
    shown = figures(found, options.context_tokens)
    if options.plot is not None:
        from calibrate.plot import plot

        plot(found, shown, options.plot)
    if options.json:
        json.dump(shown, sys.stdout, indent=1, allow_nan=False)
        print()
    else:
        Console().print(overview(shown))


@dataclass(frozen=True)
class Show:
    """What a calibration directory says."""

    directory: Positional[Path]
    """Directory that `python -m calibrate --output` wrote."""

    plot: Path | None = None
    """Also draw it into this file (.svg, .png or .pdf)."""

    context_tokens: int | None = None
    """Cached tokens of each sequence in the table of costs. Default: the one with most points."""

    json: bool = False
    """Print the figures as JSON and nothing else."""


def overview(shown: Mapping[str, Any]) -> RenderableType:
    """What `calibrate.summary.figures` found, in sections; what is missing comes last. Holds at 80 columns."""
    parts: list[RenderableType] = []
    if shown["profile"]:
        parts += [_pair(shown["profile"]), *_residuals(shown["profile"], shown["measured_points"] or ())]
    if shown["costs"]:
        parts += [*_costs(shown["costs"]), *_hints(shown["costs"]["speculation"], shown["costs"]["context_tokens"])]
    if shown["acceptance"]:
        parts += _acceptance(shown["acceptance"])
    parts += [Text(line, "yellow") for line in shown["missing"]]
    return Group(*parts)


def _pair(profile: Mapping[str, Any]) -> Table:
    target, draft = profile["target_model"], profile["draft_model"]
    grid = Table.grid(padding=(0, 2))
    lines = {
        "profile": f"{profile['name']} ({profile['digest'][:8]})",
        "target": _model(target),
        "draft": f"{_model(draft)}; {profile['draft_kind']}",
        "device": f"{profile['device']}, {_size(profile['device_memory_bytes'])}; {profile['engine']}",
        "KV pool": f"{profile['kv_tokens']:,} tokens ({profile['num_kv_blocks']:,} blocks of {profile['block_size']}); "
        f"{target['kv_bytes_per_token']:,} + {draft['kv_bytes_per_token']:,} bytes a token",
        "host": f"{number(1e3 * profile['host']['base_s'])} ms a step + "
        f"{number(1e3 * profile['host']['per_seq_s'])} ms a sequence",
        "date": " ".join(str(profile[name]) for name in ("date", "git_revision") if profile[name]),
        "versions": ", ".join(f"{name} {version}" for name, version in profile["versions"].items()),
    }
    sources = {**profile["provenance"], "host": profile["provenance"].get("host") or profile["host"]["provenance"]}
    for label, text in (*lines.items(), *((f"{name} is", source) for name, source in sources.items())):
        if text:
            grid.add_row(Text(label, "dim"), Text(str(text)))
    return grid


def _model(model: Mapping[str, Any]) -> str:
    tensor_parallel = f", TP {model['tensor_parallel_size']}" if model["tensor_parallel_size"] > 1 else ""
    size = f"{number(model['parameters'] / 1e6)} M parameters, {_size(model['weight_bytes'])}"
    return f"{model['name']}, {size}, {model['dtype']}{tensor_parallel}"


def _size(count_bytes: int) -> str:
    return f"{number(count_bytes / 1e9)} GB" if count_bytes >= 1e8 else f"{number(count_bytes / 1e6)} MB"


def _residuals(profile: Mapping[str, Any], points: Iterable[Mapping[str, Any]]) -> list[RenderableType]:
    """Errors of the fit by model and phase, beside the spread of the repeats: what no fit can beat."""
    spread = {(row["model"], row["phase"]): f"{row['p10_to_p90_percent']:.1f}" for row in points}
    rows, notes = [], []
    for model, phases in sorted(profile["residuals"].items(), reverse=True):  # target before draft
        for phase, own in phases.items():
            if "median_percent" in own:
                errors = (f"{own[f'{name}_percent']:.1f}" for name in ("median", "p95", "worst"))
                repeats = spread.get((model, phase), "-")
                rows.append([model, phase.replace("_", " "), str(own["points"]), *errors, repeats])
        if between := phases.get("spread"):
            within, visits = between["repeats_percent"], between["visits_percent"]
            notes.append(f"{model}: spread of repeats {within:.1f} % within a visit, {visits:.1f} % between visits")
    heads = ("model", "passes", "points", "median", "p95", "worst", "repeats p10-p90")
    return [*_section("Fit against measurement, absolute %", heads, rows), *(Text(note, "dim") for note in notes)]


def _costs(costs: Mapping[str, Any]) -> list[RenderableType]:
    rows, extrapolated = [], False
    queries = list(costs["passes"][0]["target_ms"])
    for row in costs["passes"]:
        beyond = {str(q) for q in row["extrapolated_queries"]}
        extrapolated |= bool(beyond)
        target = [number(row["target_ms"][q]) + ("*" if q in beyond else "") for q in queries]
        rows.append([str(row["num_seqs"]), number(row["draft_ms"]), *target, f"{row['draft_to_target']:.2f}"])
    title = f"Cost of a pass in ms at {costs['context_tokens']} cached tokens; q new tokens a sequence"
    heads = ("B", "draft q=1", *(f"{'target ' if q == '1' else ''}q={q}" for q in queries), "draft/target")
    note = [Text("* larger than any measured pass: extrapolated", "yellow")] if extrapolated else []
    return [*_section(title, heads, rows), *note]


def _hints(rows: Sequence[Mapping[str, Any]], context: int) -> list[RenderableType]:
    """Where speculation pays, every sequence drafting k in each step."""
    shown = [str(k) for k in SHOWN_BREAK_EVEN if str(k) in rows[0]["break_even_length"]]
    cells = []
    for row in rows:
        gain, best = row["speed_up"] or {}, row["best_k"]
        needed = [f"{row['break_even_length'][k]:.2f}" for k in shown]
        found = f"{gain[str(best)]:.2f}x" if best else "-"
        cells.append(
            [str(row["num_seqs"]), _plain(best), found, _plain(row["break_even_k"]), *needed, _decimal(row["ceiling"])]
        )
    title = f"Does it pay? Host time included, {context} cached tokens; length that breaks even at k"
    heads = ("B", "best k", "speed-up", "break-even k", *(f"k={k}" for k in shown), "ceiling")
    note = "speed-up, best and break-even k: with the recorded acceptance; ceiling: if all drafts were accepted"
    return [*_section(title, heads, cells), Text(note, "dim")]


def _plain(value: object) -> str:
    return "-" if value is None else str(value)


def _acceptance(found: Mapping[str, Any]) -> list[RenderableType]:
    depth = found["depth"]
    error = "" if found["standard_error"] is None else f" +- {100 * found['standard_error']:.1f}"
    head = f"Acceptance, {found['kind']}: {percent(found['mean_acceptance'])}{error} of first proposals; "
    head += f"{found['trajectories']:,} trajectories, {found['windows']:,} windows of {depth}"
    ks = [k for k in SHOWN_LENGTHS if k <= depth]
    curves = {
        "accepted at depth": found["accepted_at_depth"],
        "if reached": found["accepted_if_reached"],
        "acceptance length": found["acceptance_length"],
    }
    by_depth = [[name, *(_decimal(curve[k - 1]) for k in ks)] for name, curve in curves.items()]
    own = [k for k in SHOWN_TASK_LENGTHS if k <= depth]
    tasks = [
        [
            task or "(none)",
            str(row["trajectories"]),
            percent(row["mean_acceptance"]),
            "-" if row["standard_error"] is None else f"{100 * row['standard_error']:.1f}",
            *(f"{row['acceptance_length'][k - 1]:.2f}" for k in own),
        ]
        for task, row in found["tasks"].items()
    ]
    signals = [
        [name.replace("_", " "), _signed(value), _signed(found["dsde_correlations"].get(name))]
        for name, value in found["correlations"].items()
    ]
    return [
        *_section(head, ("k or depth", *map(str, ks)), by_depth),
        *_section(
            "By task: first proposals accepted, acceptance length at k",
            ("task", "texts", "accepted", "+-", *(f"k={k}" for k in own)),
            tasks,
        ),
        *_section("Correlation with acceptance, token by token", ("signal", "here", "DSDE's paper, T=0"), signals),
        *(Text(f"note: {note}", "yellow") for note in found["notes"]),
    ]


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"


def _section(title: str, heads: Cells, rows: Sequence[Cells]) -> list[RenderableType]:
    """A title and a table, the first column to the left; nothing where there are no rows."""
    if not rows:
        return []
    table = Table(box=box.ASCII, show_edge=False, header_style="bold", pad_edge=False, border_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    return [Text(), Text(title, "bold"), table]
