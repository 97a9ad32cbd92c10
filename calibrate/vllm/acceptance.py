"""Acceptance windows from what a server tells: exact where it tells every step, as good as its sums where not.

per-step arrays   which draft tokens agree with the text is known position by position, up to the first rejection of
                  each step; a position behind a draft that was accepted whole was never judged: it takes the mean rate
a bench run       the number of steps of each request is known, and so is what it accepted in all; the lengths of its
                  runs are drawn from the server's per-position counters, and spread over the request at random
counters          one window of conditional rates per position
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from calibrate.vllm.bench import BenchRun
from calibrate.vllm.responses import Response
from calibrate.vllm.scrape import Counters
from sim.replay.sources import DEPTH, positions
from sim.replay.windows import Table, Windows
from traces.errors import InputError

Floats = NDArray[np.float64]
Step = tuple[int, int]
"""Draft tokens proposed, accepted."""

RARE = 0.05
"""A position that fewer of the drafts reach says nothing; the rate of the one before holds on."""


def of_responses(responses: Sequence[Response], name: str, look_up: bool) -> Windows:
    """Windows of recorded steps. Raises InputError if no step drafted."""
    if not any(response.drafted for response in responses):
        raise InputError(f"{name}: no step of any response drafted: there is no acceptance in it")
    texts: list[list[Step]] = []
    for response in responses:
        plain: list[Step] = [(0, 0)] * response.plain_steps
        texts.append(plain + list(zip(response.drafted, response.accepted, strict=True)))
    notes = ["a position behind a draft accepted whole was not judged: mean rate of the judged ones"]
    if look_up and any(response.plain_steps for response in responses):
        notes.append("steps in which the look-up found nothing are not listed: taken as the first of each response")
    return _windows([text for text in texts if text], name, look_up, tuple(notes))


def of_bench(run: BenchRun, name: str, look_up: bool, seed: int = 0) -> Windows:
    """A trajectory for each request of a run, with as many steps as it took; task: the number of the request.

    Raises InputError for a run without speculation.
    """
    if run.counters is None:
        raise InputError(f"{run.path}: no counters of speculation: there is no acceptance in it")
    counters, rng = run.counters, np.random.default_rng(seed)
    at_least = np.array([counters.drafts, *counters.accepted_at, 0])
    of_length = np.maximum(at_least[:-1] - at_least[1:], 0).astype(np.float64)  # drafts that accepted 0, 1, 2, ...
    lengths, chance = np.arange(1, len(of_length)), of_length[1:] / max(of_length[1:].sum(), 1)
    empty = of_length[0] / max(of_length[1:].sum(), 1)
    texts = []
    for steps, accepted in zip(run.chunks.tolist(), run.accepted.tolist(), strict=True):
        runs = _runs(steps, accepted, lengths, chance, rng)
        hollow = steps - len(runs)
        drafting = min(round(len(runs) * empty), hollow) if look_up else hollow
        text = [(DEPTH, length) for length in runs] + [(DEPTH, 0)] * drafting + [(0, 0)] * (hollow - drafting)
        texts.append([text[i] for i in rng.permutation(len(text))] or [(0, 0)])
    notes = ("steps and accepted tokens of each request as measured; which of its steps accepted them is drawn",)
    return _windows(texts, name, look_up, notes, tuple(map(str, range(len(run)))))


def _runs(steps: int, accepted: int, lengths: NDArray[np.int64], chance: Floats, rng: np.random.Generator) -> list[int]:
    """Lengths of accepted runs that sum to `accepted`, no more of them than steps."""
    runs: list[int] = []
    while (left := accepted - sum(runs)) > 0 and len(runs) < steps:
        runs.append(min(int(rng.choice(lengths, p=chance)) if len(lengths) else left, left))
    for index in range(left):  # steps ran out: lengthen the runs there are
        runs[index % len(runs)] += 1
    return runs


def of_counters(counters: Counters, name: str) -> Windows:
    """One window of per-position rates. Raises InputError if nothing was drafted."""
    if counters.drafts <= 0 or not counters.accepted_at:
        raise InputError(f"{name}: no draft was counted: there is no acceptance in it")
    found = positions(conditional_rates(counters))
    return Windows(name, "measured", found.accept, found.on, found.off, notes=(*found.notes, "per-position rates only"))


def conditional_rates(counters: Counters) -> list[float]:
    """Chance of each position, given that those before it were accepted.

    Where drafts differ in length, the counters do not say how many reached a position: as many as their sum allows.
    """
    rates: list[float] = []
    before, left = counters.drafts, counters.draft_tokens
    for accepted in counters.accepted_at:
        long_enough = min(max(left, 0), counters.drafts)
        left -= long_enough
        if long_enough < RARE * counters.drafts or before == 0:
            break
        rates.append(min(accepted / (before * long_enough / counters.drafts), 1.0))
        before = accepted
    return rates or [0.0]


def _windows(
    texts: list[list[Step]], name: str, look_up: bool, notes: tuple[str, ...], task: tuple[str, ...] | None = None
) -> Windows:
    """Steps in order to windows: agreement by position, every window a stretch of it."""
    agreement = [_agreement(text) for text in texts]
    judged = np.concatenate(agreement)
    judged = judged[np.isfinite(judged)]
    rate = float(judged.mean()) if len(judged) else 0.0
    rows = [_sliding(np.nan_to_num(each, nan=rate)) for each in agreement]
    on: dict[str, Table] = {}
    if look_up:
        found = [np.repeat([k > 0 for k, _ in text], [a + 1 for _, a in text]) for text in texts]
        on["draft_prob"] = np.repeat(np.concatenate(found)[:, None], DEPTH, axis=1).astype(np.float32)
    else:
        notes = (*notes, "no signals: policies that look at entropy or divergence cannot run on it")
    return Windows(
        name=name,
        kind="measured",
        accept=np.concatenate(rows),
        on=on,
        off=dict(on),
        start=np.cumsum([0, *map(len, rows[:-1])]).astype(np.int64),
        task=task or ("",) * len(texts),
        notes=notes,
    )


def _agreement(text: list[Step]) -> Floats:
    """1, 0 or NaN (not judged) for each position of a text after its first token."""
    values: list[float] = []
    for proposed, accepted in text:
        values += [1.0] * accepted
        values.append(0.0 if accepted < proposed else np.nan)
    return np.array(values)


def _sliding(values: Floats) -> Table:
    """[T] -> [T, DEPTH], around the end."""
    around = np.resize(values, len(values) + DEPTH - 1).astype(np.float32)
    return np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(around, DEPTH))
