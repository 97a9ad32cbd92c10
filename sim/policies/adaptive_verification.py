"""Adaptive verification (vLLM; DSpark, arXiv 2607.05147; TETRIS, arXiv 2502.15197): draft K, verify what pays.

    survival[i, d] = prod_{j <= d} sigmoid(w0 + w1 logit q[i, j] + w2 j)       q: draft probability of the token
    admit slots (i, d), the most likely first, to the budget n that maximises
        (B + sum of the admitted survivals) / (draft seconds + verification seconds of n tokens)

Hooks: lengths (K for everyone), trim (the budget), observe (re-fits w). Admission and calibration [A]; the estimator,
its start (w = 0, 1, 0: the draft's word is taken) and looking for the best budget rather than the first after which the
rate falls, since real costs have plateaus, are ours [O].

Lossless when greedy. A warning for sampling: here the probability of a draft token takes part in deciding whether that
very token is verified, and to drop tokens by what was drawn changes the law of what is emitted a little.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import OnlineLogistic, admission, logit, verdicts
from traces.errors import InputError


@policies.register("adaptive-verification")
class AdaptiveVerification(LengthPolicy):
    """Draft k for everyone, verify the tokens most likely to survive, as many as the batch's rate rises with."""

    name = "adaptive-verification"
    source = "vLLM, DSpark arXiv 2607.05147, TETRIS arXiv 2502.15197 [A]; estimator [O]"

    def __init__(self, context: PolicyContext, k: int = 4) -> None:
        if k < 0:
            raise InputError(f"policy adaptive-verification: k is {k}, expected 0 or more")
        self.max_length = k
        self.model = OnlineLogistic((0.0, 1.0, 0.0))
        self._of: Signals | None = None  # signals of the draft that was trimmed last, and the features made of them
        self._drafted: Floats
        self._step_seconds = context.step_seconds
        self._verify_seconds_many = context.verify_seconds_many

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def trim(self, batch: DecodeBatch, proposed: Ints, signals: Signals) -> Ints:
        depth = int(proposed.max())
        self._of, self._drafted = signals, _features(signals, depth)
        survival = np.cumprod(self.model(self._drafted), axis=1)
        admitted, accepted = admission(survival, proposed)
        verify_s = self._verify_seconds_many(batch, admitted)
        draft_s = self._step_seconds(batch, proposed) - verify_s[-1]  # the last budget verifies all that was drafted
        best: Ints = admitted[np.argmax((len(batch) + accepted) / (draft_s + verify_s))]
        return best

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.verified.max())
        if depth:
            judged, accepted = verdicts(outcome, depth)
            known = self._drafted[:, :depth] if outcome.signals is self._of else _features(outcome.signals, depth)
            self.model.update(known[judged], accepted[judged])


def _features(signals: Signals, depth: int) -> Floats:
    """1, logit of the draft probability, depth from 1: float[B, depth, 3]."""
    confidence = logit(signals.draft_prob[:, :depth].astype(np.float64))
    features = np.empty((*confidence.shape, 3))
    features[..., 0] = 1.0
    features[..., 1] = confidence
    features[..., 2] = np.arange(1, depth + 1)
    return features
