"""Signals against acceptance, one row a step, as a policy that drafts k tokens would have met them in the windows.

The table of arXiv 2509.01083 (correlations with acceptance at T = 0: draft entropy -.339, mean KLD -.164, WVIR +.128).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibrate.acceptance import pearson
from sim.policies.dsde import paper, wvir
from sim.policies.history import DecayedVariance
from sim.replay.windows import Windows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """Steps in order. Values that need a history are NaN before there is one.

    accepted      share of the k draft tokens that were accepted
    entropy       mean draft entropy of the step's proposals, nats
    kld           mean KLD of the step's proposals, nats
    kld_before    the same of the step before: what a policy knows when it chooses the next length
    wvir          variance ratio of the KLD history before the step, 30 proposals or more
    """

    accepted: Floats
    entropy: Floats
    kld: Floats
    kld_before: Floats
    wvir: Floats


@dataclass
class _Rows:
    accepted: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    kld: list[float] = field(default_factory=list)
    kld_before: list[float] = field(default_factory=list)
    wvir: list[float] = field(default_factory=list)


def walk(windows: Windows, k: int, seed: int = 0) -> Steps:
    """Every trajectory from its start with k drafts a step; acceptance is drawn by seed where it is a chance.

    Proposals after a rejection carry the off-trajectory signals, as in sim.replay.acceptance.
    """
    constants = paper()
    variance = DecayedVariance(constants.warm_up, constants.decay, constants.short_window, constants.long_window)
    rng = np.random.default_rng(seed)
    rows = _Rows()
    for start, count in zip(windows.start.tolist(), windows.rows_of.tolist(), strict=True):
        history: list[float] = []
        row, before = start, np.nan
        while row < start + count:
            held = rng.random(k) < windows.accept[row, :k]
            run = int(np.append(held, False).argmin())
            kld, entropy = (_proposed(windows, name, row, run, k, start + count) for name in ("kld", "draft_entropy"))
            rows.accepted.append(run / k)
            rows.entropy.append(float(entropy.mean()))
            rows.kld.append(float(kld.mean()))
            rows.kld_before.append(before)
            rows.wvir.append(_ratio(variance, history, constants.warm_up))
            before = rows.kld[-1]
            history += kld.tolist()
            row += run + 1
    return Steps(*(np.array(getattr(rows, name)) for name in Steps.__dataclass_fields__))


def correlations(windows: Windows, k: int = 4, seed: int = 0) -> dict[str, float | None]:
    """Pearson's correlation of each signal with the share of accepted drafts of a step; None where one is constant."""
    steps = walk(windows, k, seed)
    names = {
        "draft entropy": steps.entropy,
        "mean KLD": steps.kld,
        "mean KLD of the step before": steps.kld_before,
        "WVIR": steps.wvir,
    }
    known = {name: np.isfinite(values) for name, values in names.items()}
    return {name: pearson(values[known[name]], steps.accepted[known[name]]) for name, values in names.items()}


def _proposed(windows: Windows, name: str, row: int, run: int, k: int, end: int) -> Floats:
    """A signal of the k proposals of a step at `row` whose first `run` are accepted."""
    values = windows.on[name][row, :k].astype(np.float64)
    lost = row + run  # where the first rejection was
    if run + 1 < k and name in windows.off and lost < end:
        values[run + 1 :] = windows.off[name][lost, : k - run - 1]
    return values


def _ratio(variance: DecayedVariance, history: list[float], length: int) -> float:
    if len(history) < length:
        return np.nan
    recent, count = np.array(history[-length:])[None], np.array([length])
    short, long = variance(recent, count)
    return float(wvir(short, long, count)[0])
