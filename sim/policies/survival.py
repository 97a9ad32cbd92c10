"""Survival of draft tokens: the chance that a token and all before it are accepted, calibrated online.

    survival[i, d] = prod_{j <= d} sigmoid(w . x[i, j])        x: features of sequence i at depth j

The weights are re-fitted after every verification by one Newton step of the logistic likelihood, over a curvature that
forgets old verdicts:

    R <- memory^N R + X' diag(p (1 - p)) X;    w <- w + (R + strength I)^-1 X' (verdict - p)      N new verdicts

Calibrating draft confidence against verdicts as they come is the idea of vLLM's adaptive verification (DSpark,
arXiv 2607.05147) [A]; the estimator, an online Newton step, is our own choice [O].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import Floats, Ints
from sim.control.executor import Outcome

Mask = NDArray[np.bool_]

MEMORY = 0.9998
"""Share of a verdict's weight that is left after the next one: 5,000 verdicts back count a third [O]."""
STRENGTH = 2.0
"""Ridge of the Newton step: with few verdicts, or with all of them equal, the weights move slowly [O]."""
LARGEST_LOGIT = 9.0
"""Chances stay within 1e-4 of 0 and 1, so that they can be learned back [O]."""


class OnlineLogistic:
    """P(accepted | features), learned from verdicts as they come. `start`: the weights before the first verdict."""

    def __init__(self, start: Sequence[float], memory: float = MEMORY, strength: float = STRENGTH) -> None:
        self.weights: Floats = np.array(start, np.float64)
        self.memory = memory
        self._curvature = np.zeros((len(start), len(start)))
        self._ridge = strength * np.eye(len(start))

    def __call__(self, features: Floats) -> Floats:
        """float[..., F] -> chance, float[...]."""
        return chance(features @ self.weights)

    def update(self, features: Floats, accepted: Mask) -> None:
        """Learn from N verdicts: float[N, F], bool[N]. None at all changes nothing."""
        if not len(features):
            return
        expected = self(features)
        self._curvature *= self.memory ** len(features)
        self._curvature += features.T @ (features * (expected * (1 - expected))[:, None])
        self.weights += np.linalg.solve(self._curvature + self._ridge, features.T @ (accepted - expected))


def chance(logit: Floats) -> Floats:
    """The logistic function, kept away from 0 and 1."""
    bounded = np.minimum(np.maximum(logit, -LARGEST_LOGIT), LARGEST_LOGIT)
    return np.asarray(1.0 / (1.0 + np.exp(-bounded)))


def logit(probability: Floats) -> Floats:
    """ln(p / (1 - p)) with p kept within 1e-4 of 0 and 1; undefined values count as 1/2."""
    inside = np.minimum(np.maximum(np.where(np.isnan(probability), 0.5, probability), 1e-4), 1 - 1e-4)
    return np.asarray(np.log(inside / (1.0 - inside)))


def verdicts(outcome: Outcome, depth: int) -> tuple[Mask, Mask]:
    """Which of the first `depth` positions the target judged, and which it accepted: bool[B, depth] each.

    Judged are the accepted run and the first rejection, as far as tokens were verified; what lies behind was drafted
    from a text that the target did not want.
    """
    position = np.arange(depth)
    accepted = position < outcome.accepted[:, None]
    judged = position < np.minimum(outcome.accepted + 1, outcome.verified)[:, None]
    return judged, accepted


def within(survival: NDArray[np.floating], lengths: Ints) -> Floats:
    """Survival with 0 behind each sequence's length: float[B, D], int64[B] -> float[B, D]."""
    return np.where(np.arange(survival.shape[1]) < lengths[:, None], survival, 0.0)


MOST_BUDGETS = 16
"""Budgets that are priced in one step; more slots than these are admitted in equal portions [O]."""


def admission(survival: NDArray[np.floating], lengths: Ints) -> tuple[NDArray[np.int64], Floats]:
    """Rising budgets of tokens, the most likely first: how much of each sequence a budget admits, and what it yields.

    survival float[B, D], not rising with depth; lengths int64[B], slots that there are. Returns admitted int64[N, B]
    and expected accepted tokens float[N]; the first budget is 0, the last is every slot. Prefixes come out by
    themselves, for survival never rises with depth and equal ones (to 12 digits) are taken from the shallow end.
    """
    num_seqs, depth = survival.shape
    values = np.asarray(survival.T, np.float64).ravel()  # depth by depth
    # one number orders a slot: its survival, falling, to 12 digits, and among equals its place
    places = (1 << values.size.bit_length()) - 1
    keys = (-values.view(np.int64) & ~places) | np.arange(values.size)
    keys = keys[(np.arange(depth)[:, None] < lengths).ravel()]
    keys.sort()
    place, total = keys & places, len(keys)
    budgets = np.arange(total + 1) if total < MOST_BUDGETS else np.arange(MOST_BUDGETS + 1) * total // MOST_BUDGETS
    yields = np.concatenate([[0.0], np.cumsum(values[place])])[budgets]
    portion = np.repeat(np.arange(1, len(budgets)), budgets[1:] - budgets[:-1])  # the first budget that admits the slot
    counts = np.bincount(portion * num_seqs + place % num_seqs, minlength=len(budgets) * num_seqs)
    return np.cumsum(counts.reshape(-1, num_seqs), axis=0), np.asarray(yields)
