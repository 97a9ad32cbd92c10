"""The report of a validation: the same tables as Markdown and, with plots, as one HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis import page
from calibrate.validation.errors import Figure, PerRequest
from calibrate.validation.plots import by_batch, pictures
from calibrate.validation.validation import Cell, Validation
from calibrate.validation.virtual import Cause
from traces.files import write_text


@dataclass(frozen=True)
class Table:
    """Under a heading, with a sentence on how to read it."""

    title: str
    how: str
    head: Sequence[str]
    rows: list[list[str]]


def write_report(found: Validation, checks: list[dict[str, Any]]) -> None:
    """report.md and report.html in the output directory."""
    output = found.inputs.config.output
    tables = [each for each in _tables(found) if each.rows]
    write_text(output / "report.md", _markdown(found, checks, tables))
    write_text(output / "report.html", _html(found, checks, tables))


def _title(found: Validation) -> str:
    return f"Validation of the simulator: {found.inputs.profile.name}"


def _lead(found: Validation, checks: list[dict[str, Any]]) -> str:
    config, held = found.inputs.config, sum(check["holds"] for check in checks)
    return (
        f"{held} of {len(checks)} checks hold. {found.inputs.num_prompts} requests, {config.repeats} live repeats of "
        f"each policy and rate on {found.inputs.profile.device}, {config.sim_seeds} simulations with held-out windows."
    )


def _failed(checks: list[dict[str, Any]]) -> list[str]:
    return [f"{check['what']}: {_why(check)}" for check in checks if not check["holds"]]


def _why(check: dict[str, Any]) -> str:
    if "error_percent" in check:
        spread = f"live repeats differ by {_number(check['spread_percent'])} %"
        return f"off by {_number(check['error_percent'], sign='+')} %, allowed {check['limit_percent']:g} %, {spread}"
    if "live" in check:
        live, simulated = check["live"], check["simulated"]
        return f"live {_interval(live)}, simulated {_interval(simulated)}"
    if "identical_share" in check:
        ties = "every difference explained" if check["explained"] else "not every difference explained"
        return f"{100 * check['identical_share']:.2f} % identical, {ties}"
    return f"{check['same']} of {check['decided']} pairs; swapped: " + ", ".join("/".join(s) for s in check["swapped"])


def _interval(value: Sequence[float | None]) -> str:
    mean, low, high = (_number(each, 3) for each in value)
    return f"{mean} [{low}, {high}]"


def _markdown(found: Validation, checks: list[dict[str, Any]], tables: list[Table]) -> str:
    lines = [f"# {_title(found)}", "", _lead(found, checks), ""]
    lines += [f"- {note}" for note in found.inputs.notes]
    if failed := _failed(checks):
        lines += ["", "## Checks that do not hold", "", *(f"- {each}" for each in failed)]
    for each in tables:
        lines += ["", f"## {each.title}", "", each.how, ""]
        lines += [_row(each.head), _row(["---"] * len(each.head)), *map(_row, each.rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _html(found: Validation, checks: list[dict[str, Any]], tables: list[Table]) -> str:
    body = [page.bullets(found.inputs.notes)]
    if failed := _failed(checks):
        body += [page.heading(2, "Checks that do not hold"), page.bullets(failed)]
    body += [page.heading(2, "Live against simulated"), page.pictures(list(pictures(found)), 1)]
    for each in tables:
        body += [page.heading(2, each.title), page.paragraph(each.how, "small"), page.table(each.head, each.rows)]
    return page.page(_title(found), _lead(found, checks), body)


def _tables(found: Validation) -> Iterator[Table]:
    yield Table(
        "Decisions in virtual time",
        "Steps of sequences that the live executor, under the cost model's clock, and the replay of the same texts "
        "took alike. A request is not compared beyond its first difference.",
        ("policy", "rate", "steps", "alike", "%", "one schedule", "same texts", "differences"),
        [_decisions(cell) for cell in found.cells if cell.decisions],
    )
    yield Table(
        "Differences and their near-ties",
        "Margin: the distance of the two largest logits where the texts part (target), or the smallest within the "
        "draft. Values are tokens, proposed, verified, accepted.",
        ("policy", "rate", "request", "emission", "live", "simulated", "cause", "margin", "explained"),
        [_cause(cell, each) for cell in found.cells if cell.decisions for each in cell.decisions.causes[:20]],
    )
    yield Table(
        "Acceptance length",
        "Tokens of a step that verified a draft. 95 % intervals: live over requests, simulated over the recorded texts "
        "that were replayed.",
        ("policy", "rate", "live", "simulated, held out", "% off", "own windows", "intervals agree"),
        [_length(cell) for cell in found.cells if not math.isnan(cell.length.mean)],
    )
    how = "Percent that the simulated figure is off; spread: how far the farthest live repeat is from their mean."
    head = ("policy", "rate", "metric", "live", "simulated", "% off", "spread %", "limit %", "holds")
    yield Table(
        "Time, costs and windows held out",
        how,
        head,
        [_figure(cell, each) for cell in found.cells for each in cell.figures],
    )
    yield Table(
        "Time, costs held out, the requests' own windows",
        "What is left when acceptance is right: the error of the cost model. " + how,
        head[:-2],
        [_figure(cell, each)[:-2] for cell in found.cells for each in cell.own_figures],
    )
    how = "Mean absolute error, bias and correlation over requests; noise: a live repeat against the mean of the rest."
    head = ("policy", "rate", "latency", "requests", "error %", "bias %", "correlation", "noise %", "worst requests")
    yield Table("Single requests, own windows", how, head, list(_requests(found, own=True)))
    yield Table("Single requests, held-out windows", how, head, list(_requests(found, own=False)))
    yield Table(
        "Order of the policies",
        "Pairs that the live repeats tell apart (their ranges do not overlap), and those of them in the same order.",
        ("rate", "metric", "decided", "same order", "swapped"),
        [
            [rate, metric, str(each.decided), str(each.same), ", ".join("/".join(pair) for pair in each.swapped)]
            for (rate, metric), each in found.rankings.items()
        ],
    )
    yield Table(
        "Steps that only decode",
        "Medians in milliseconds by sequences in the batch.",
        ("policy", "sequences", "live steps", "live ms", "simulated ms", "% off"),
        list(_steps(found)),
    )
    yield Table(
        "Load of the machine",
        "Load average of a minute before and after each live run, and cores busy with other processes meanwhile.",
        ("policy", "rate", "repeat", "before", "after", "cores of others"),
        [_load(cell, number, load) for cell in found.cells for number, load in enumerate(cell.live.loads, 1)],
    )


def _decisions(cell: Cell) -> list[str]:
    assert cell.decisions is not None
    own, compared = cell.decisions, cell.decisions.comparison
    return [
        *(own.policy, own.rate, str(compared.steps), str(compared.same), f"{100 * own.share:.3f}"),
        *(_yes(compared.same_steps), _yes(own.same_texts), str(len(compared.differences))),
    ]


def _cause(cell: Cell, cause: Cause) -> list[str]:
    each = cause.difference
    return [
        *(cell.live.policy, cell.live.rate, str(each.request), str(each.emission), str(each.live)),
        *(str(each.simulated), cause.what, "-" if math.isnan(cause.margin) else f"{cause.margin:.2g}"),
        _yes(cause.explained),
    ]


def _length(cell: Cell) -> list[str]:
    live, held_out = cell.length, cell.simulations.length
    own = [each for each in cell.own_figures if each.name == "spec_decode_acceptance_length"]
    return [
        *(cell.live.policy, cell.live.rate, _interval((live.mean, *live.interval))),
        *(_interval((held_out.mean, *held_out.interval)), f"{100 * (held_out.mean / live.mean - 1):+.1f}"),
        *(_number(own[0].simulated_mean, 3) if own else "-", _yes(live.agrees(held_out))),
    ]


def _figure(cell: Cell, figure: Figure) -> list[str]:
    limit = "" if figure.limit_percent is None else f"{figure.limit_percent:g}"
    holds = "" if figure.holds is None else _yes(figure.holds)
    return [
        *(cell.live.policy, cell.live.rate, figure.name, f"{figure.live_mean:.4g}", f"{figure.simulated_mean:.4g}"),
        *(f"{figure.error_percent:+.1f}", _number(figure.spread_percent), limit, holds),
    ]


def _requests(found: Validation, *, own: bool) -> Iterator[list[str]]:
    for cell in found.cells:
        each: PerRequest
        for name, each in (cell.own_requests if own else cell.requests).items():
            yield [
                *(cell.live.policy, cell.live.rate, name, str(each.requests), _number(each.mape)),
                *(_number(each.bias), _number(each.correlation, 3), _number(each.noise)),
                " ".join(map(str, each.worst)),
            ]


def _steps(found: Validation) -> Iterator[list[str]]:
    for policy in found.inputs.config.policy:
        live, simulated = by_batch([cell for cell in found.cells if cell.live.policy == policy])
        for size in sorted(live.keys() & simulated.keys()):
            if len(live[size]) >= 10 and size in (1, 2, 4, 8, 12, 16, 24, 32, max(live)):
                a, b = 1e3 * np.median(live[size]), 1e3 * np.median(simulated[size])
                yield [policy, str(size), str(len(live[size])), f"{a:.2f}", f"{b:.2f}", f"{100 * (b / a - 1):+.1f}"]


def _load(cell: Cell, repeat: int, load: dict[str, Any]) -> list[str]:
    minutes = [f"{load[when]['load_average'][0]:.2f}" for when in ("before", "after")]
    return [cell.live.policy, cell.live.rate, str(repeat), *minutes, f"{load['cores_busy_with_others']:.2f}"]


def _number(value: float | None, digits: int = 1, sign: str = "") -> str:
    return "-" if value is None or math.isnan(value) else f"{value:{sign}.{digits}f}"


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
