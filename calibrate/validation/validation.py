"""From settings to report: live runs, simulations, comparisons, and the checks that a CI job can gate on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from calibrate.validation.config import ValidateConfig
from calibrate.validation.errors import (
    Figure,
    Length,
    PerRequest,
    Ranking,
    acceptance_length,
    per_request,
    ranking,
)
from calibrate.validation.inputs import Inputs, Say, load
from calibrate.validation.replays import LATENCIES, Simulations, simulate_all
from calibrate.validation.runs import LiveRuns, run_all
from calibrate.validation.virtual import Decisions, decide
from sim.policies import default_rule
from sim.results import plain
from traces.files import write_text

LENGTH = "spec_decode_acceptance_length"
LIMITS: dict[str, float] = {"output_throughput": 3, LENGTH: 3, "mean_tpot_ms": 5, "mean_e2el_ms": 5}
LIMITS |= {"p90_tpot_ms": 10, "p90_e2el_ms": 10, "mean_ttft_ms": 10}
"""Percent that a simulated figure may be off; live repeats that differ by more allow as much."""
NAMES = (
    "output_throughput",
    LENGTH,
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in ("mean", "p50", "p90", "p99")),
)
IDENTICAL = 0.999
RANKED = ("mean_e2el_ms", "output_throughput")


@dataclass(frozen=True)
class Cell:
    """One policy at one rate. own_*: simulated with the requests' own windows, so that only costs are held out."""

    live: LiveRuns
    simulations: Simulations
    figures: tuple[Figure, ...]
    own_figures: tuple[Figure, ...]
    length: Length
    requests: dict[str, PerRequest]
    own_requests: dict[str, PerRequest]
    decisions: Decisions | None

    @property
    def name(self) -> str:
        return f"{self.live.policy} at {self.live.rate}/s"


@dataclass(frozen=True)
class Validation:
    """All cells, and by rate and metric the order of the policies."""

    inputs: Inputs
    cells: tuple[Cell, ...]
    rankings: dict[tuple[str, str], Ranking]


def validate(config: ValidateConfig, say: Say) -> dict[str, Any]:
    """Run what is missing, write report.md, report.html and validation.json; returns what that holds.

    Raises InputError; KeyboardInterrupt when stopped. What was finished is kept in either case.
    """
    from calibrate.validation.report import write_report

    inputs = load(config, say)
    cells = tuple(_cell(inputs, live, say) for live in run_all(inputs, say))
    found = Validation(inputs, cells, _rankings(config, cells))
    document = to_dict(found)
    write_text(config.output / "validation.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    write_report(found, document["checks"])
    failed = [check["what"] for check in document["checks"] if not check["holds"]]
    say(f"{len(document['checks']) - len(failed)} of {len(document['checks'])} checks hold; {config.output}/report.md")
    return document


def _cell(inputs: Inputs, live: LiveRuns, say: Say) -> Cell:
    exact = bool(inputs.trajectories) and default_rule(live.policy) == "lossless"
    simulations = simulate_all(inputs, live.policy, live.rate, own=exact)
    held_out = [each.metrics for each in simulations.held_out]
    measured = [each.metrics for each in live.repeats]
    own = simulations.own
    rows = [each.requests for each in live.repeats]
    drafts, accepted = (
        np.concatenate([frame[name].to_numpy() for frame in rows])
        for name in ("num_spec_steps", "num_accepted_draft_tokens")
    )
    decisions = None
    if exact:
        say(f"decisions: {live.policy} at {live.rate} requests/s")
        decisions = decide(inputs, live.policy, live.rate)
    latencies = {name: np.array([frame[f"{name}_s"].to_numpy(np.float64) for frame in rows]) for name in LATENCIES}
    return Cell(
        live,
        simulations,
        _figures(measured, held_out),
        _figures(measured, [own.metrics]) if own else (),
        acceptance_length(drafts, accepted, np.tile(np.arange(len(rows[0])), len(rows))),
        {
            name: per_request(latencies[name], np.mean([each.requests[name] for each in simulations.held_out], 0))
            for name in LATENCIES
        },
        {name: per_request(latencies[name], own.requests[name]) for name in LATENCIES} if own else {},
        decisions,
    )


def _figures(live: list[dict[str, Any]], simulated: list[dict[str, Any]]) -> tuple[Figure, ...]:
    """Of what is defined in every run."""
    found = []
    for name in NAMES:
        sides = [tuple(each[name] for each in side if each.get(name) is not None) for side in (live, simulated)]
        if len(sides[0]) == len(live) and len(sides[1]) == len(simulated):
            found.append(Figure(name, sides[0], sides[1], LIMITS.get(name)))
    return tuple(found)


def _rankings(config: ValidateConfig, cells: tuple[Cell, ...]) -> dict[tuple[str, str], Ranking]:
    found = {}
    for rate in config.request_rate:
        own = {cell.live.policy: {each.name: each for each in cell.figures} for cell in cells if cell.live.rate == rate}
        for metric in RANKED:
            live = {policy: figures[metric].live for policy, figures in own.items() if metric in figures}
            simulated = {policy: own[policy][metric].simulated_mean for policy in live}
            found[rate, metric] = ranking(live, simulated)
    return found


def checks(found: Validation) -> Iterator[dict[str, Any]]:
    """What must hold, each with its figures."""
    for cell in found.cells:
        yield from _checks(cell)
    for (rate, metric), order in found.rankings.items():
        if order.decided:
            what = f"{rate}/s: order of policies by {metric}"
            yield {"what": what, "holds": order.same == order.decided} | asdict(order)


def _checks(cell: Cell) -> Iterator[dict[str, Any]]:
    for each in cell.figures:
        if each.holds is not None:
            yield {
                "what": f"{cell.name}: {each.name}",
                "holds": each.holds,
                "error_percent": each.error_percent,
                "limit_percent": each.limit_percent,
                "spread_percent": each.spread_percent,
            }
    live, simulated = cell.length, cell.simulations.length
    if not np.isnan(live.mean):
        yield {
            "what": f"{cell.name}: acceptance length within its interval",
            "holds": live.agrees(simulated),
            "live": [live.mean, *live.interval],
            "simulated": [simulated.mean, *simulated.interval],
        }
    if cell.decisions is not None:
        share, explained = cell.decisions.share, cell.decisions.explained
        yield {
            "what": f"{cell.name}: decisions",
            "holds": share >= IDENTICAL and explained,
            "identical_share": share,
            "explained": explained,
        }


def to_dict(found: Validation) -> dict[str, Any]:
    """validation.json, as JSON types only."""
    made = list(checks(found))
    document: dict[str, Any] = plain(
        {
            "passed": all(check["holds"] for check in made),
            "checks": made,
            "settings": found.inputs.config,
            "profile": found.inputs.profile.name,
            "profile_digest": found.inputs.profile.digest,
            "notes": found.inputs.notes,
            "cells": [_cell_dict(cell) for cell in found.cells],
        }
    )
    return document


def _cell_dict(cell: Cell) -> dict[str, Any]:
    return {
        "policy": cell.live.policy,
        "request_rate": cell.live.rate,
        "figures": [_figure_dict(each) for each in cell.figures],
        "figures_own_windows": [_figure_dict(each) for each in cell.own_figures],
        "requests": cell.requests,
        "requests_own_windows": cell.own_requests,
        "decisions": cell.decisions,
        "passes_outside_measured": cell.simulations.outside,
        "loads": cell.live.loads,
    }


def _figure_dict(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "live": figure.live,
        "simulated": figure.simulated,
        "error_percent": figure.error_percent,
        "spread_percent": figure.spread_percent,
    }
