"""Decisions in virtual time: the live executor's models under the cost model's clock against the replay of the texts.

A request that differs is traced to the logits that were nearly tied: of the target where the texts part, else of the
draft within the draft. Later differences follow from an earlier one: the batch and its clock are not the same any more.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.live.decisions import Comparison, Difference, compare, simulated
from calibrate.live.run import server_and_settings
from calibrate.live.serve import LiveServer
from calibrate.validation.inputs import Inputs
from sim.control.log import EventLog
from traces.errors import InputError

TIE = 1e-3
"""Logits closer than this may change places with the order of sums in float32: a margin of our own choosing."""


@dataclass(frozen=True)
class Cause:
    """What made a request differ.

    step    of the engine in the live run
    what    "target": the texts part; "draft": they do not; "follows": a step before had differed already
    margin  between the two largest logits there, the smallest of the draft's; NaN where it cannot be asked
    """

    difference: Difference
    step: int
    what: str
    margin: float

    @property
    def explained(self) -> bool:
        return self.what == "follows" or self.margin < TIE


@dataclass(frozen=True)
class Decisions:
    """Of one policy at one rate."""

    policy: str
    rate: str
    comparison: Comparison
    same_texts: bool
    causes: tuple[Cause, ...]

    @property
    def share(self) -> float:
        return self.comparison.same / max(self.comparison.steps, 1)

    @property
    def explained(self) -> bool:
        return all(cause.explained for cause in self.causes)


def decide(inputs: Inputs, policy: str, rate: str) -> Decisions:
    """Raises InputError for a policy that cannot run live, and where the models fail."""
    shared = inputs.live_inputs(rate)
    workload, prompts = shared.requests.workload, shared.requests.prompts
    server, settings = server_and_settings(inputs.live_config(policy, rate), shared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = LiveServer(
            inputs.pair,
            workload,
            prompts,
            server,
            settings,
            profile=inputs.profile,
            wall=False,
            seed=inputs.config.seed,
        )
        run = made.run()
    if run.interrupted:
        raise KeyboardInterrupt
    if run.failure is not None:
        raise InputError(f"decisions of {policy} at {rate} requests/s: {run.failure}")
    replayed = simulated(workload, inputs.trajectories, server, inputs.profile, seed=inputs.config.seed)
    written = [run.texts.output(request) for request in range(len(workload))]
    same = all(text == own.tokens.tolist() for text, own in zip(written, inputs.trajectories, strict=True))
    found = compare(run.log, replayed)
    return Decisions(policy, rate, found, same, _causes(inputs, prompts, written, run.log, found))


def _causes(
    inputs: Inputs,
    prompts: tuple[tuple[int, ...], ...],
    written: list[list[int]],
    log: EventLog,
    comparison: Comparison,
) -> tuple[Cause, ...]:
    steps = [_step(log, each) for each in comparison.differences]
    first = min(steps, default=0)
    causes: list[Cause] = []
    for difference, step in sorted(zip(comparison.differences, steps, strict=True), key=lambda pair: pair[1]):
        if step > first and causes[0].explained:
            causes.append(Cause(difference, step, "follows", float("nan")))
            continue
        text, own = written[difference.request], inputs.trajectories[difference.request].tokens.tolist()
        at = next((i for i, (a, b) in enumerate(zip(text, own, strict=False)) if a != b), None)
        emitted = _emitted(log, difference)
        depth = max((max(each[1], 0) for each in (difference.live, difference.simulated) if each), default=0)
        if at is not None and at <= emitted + depth:
            margin = _gap(inputs.pair.target, [*prompts[difference.request], *own[:at]], 1)
            causes.append(Cause(difference, step, "target", margin))
        else:
            margin = _draft_margin(inputs, prompts[difference.request], own, emitted, depth + 1)
            causes.append(Cause(difference, step, "draft", margin))
    return tuple(causes)


def _rows(log: EventLog, request: int) -> np.ndarray:
    return np.flatnonzero(log.emissions["request"] == request)


def _step(log: EventLog, difference: Difference) -> int:
    rows = _rows(log, difference.request)
    if difference.emission < len(rows):
        return int(log.emissions["step"][rows[difference.emission]])
    return len(log.steps)


def _emitted(log: EventLog, difference: Difference) -> int:
    rows = _rows(log, difference.request)[: difference.emission]
    return int(log.emissions["tokens"][rows].sum())


def _draft_margin(inputs: Inputs, prompt: tuple[int, ...], text: list[int], at: int, depth: int) -> float:
    """The smallest along the text from its token `at` on, as far as a draft reached."""
    model = inputs.pair.drafter.model
    if model is None or inputs.pair.drafter.needs_hidden:
        return float("nan")
    upto = min(at + depth, len(text))
    with contextlib.suppress(Exception):  # models that are no plain causal LM: the margin stays unknown
        return _gap(model, [*prompt, *text[:upto]], upto - at + 1)
    return float("nan")


def _gap(model: object, ids: list[int], last: int) -> float:
    """The smallest distance of the two largest logits over the last positions."""
    assert callable(model)
    with torch.inference_mode():
        device = next(model.parameters()).device  # type: ignore[attr-defined]
        logits = model(input_ids=torch.tensor([ids], device=device)).logits[0, -last:].float()
    best = logits.topk(2, -1).values
    return float((best[:, 0] - best[:, 1]).min())
