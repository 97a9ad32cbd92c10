"""The goodput cap: how long the longest drafts may be, by what they cost everyone [O].

    c* = argmax_c  sum_i (1 + s_i1 + ... + s_i,min(k_i, c)) / T(B, min(k, c))        ties: the smallest c
    s_ij = prod_{l <= j} sigmoid(w . [1, logit of the recent acceptance of sequence i, ln l])

T is the cost model's step. The recent acceptance of a sequence is accepted / judged tokens of its own (judged: the
accepted run and the first rejection), older steps fading, mixed with the engine's, which stands for sequences that have
no past; w is re-fitted after every verification (survival.py) and starts by taking it at its word.

c may be 0: then nobody drafts, which teaches nothing, so that every 32nd such step in a row lets one token through. A
policy that caps its own state (dsde:preset=code) asks for the sequences that it counts, after verification.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome
from sim.policies.base import PolicyContext
from sim.policies.caps import LearningCap, caps
from sim.policies.survival import OnlineLogistic, chance, logit, verdicts, within

FADE = 0.85
"""Weight of a step's verdicts on a sequence after one more step."""
ENGINE_FADE = 0.98
"""The same for the engine's verdicts."""
OWN = 2.0
"""Verdicts of its own after which a sequence counts as much as the engine."""
START = 0.7
"""Acceptance before the first verdict, worth one verdict."""
PROBE = 32


@caps.register("goodput")
class GoodputCap(LearningCap):
    """The c with the most expected tokens per second of the cost model, by each sequence's recent acceptance [O]."""

    def __init__(self, context: PolicyContext) -> None:
        self.accepted, self.judged = np.zeros(context.num_slots), np.zeros(context.num_slots)
        self.all_accepted, self.all_judged = START, 1.0
        self.model = OnlineLogistic((0.0, 1.0, 0.0))
        self.steps_at_zero = 0
        self._seconds = context.step_seconds_many
        self._log_depth = np.log(np.arange(1, context.max_draft_tokens + 1))

    def begin(self, slots: Ints) -> None:
        self.accepted[slots] = self.judged[slots] = 0.0

    def __call__(self, batch: DecodeBatch, lengths: Ints) -> int:
        lengths = np.minimum(lengths, batch.remaining - 1)
        depth = min(int(lengths.max()), len(self._log_depth))
        w = self.model.weights
        logits = (w[0] + w[1] * self._recent(batch.slot))[:, None] + w[2] * self._log_depth[:depth]
        survival = within(np.cumprod(chance(logits), axis=1), lengths)
        tokens = len(batch) + np.concatenate([[0.0], np.cumsum(survival.sum(axis=0))])
        seconds = self._seconds(batch, np.minimum(lengths, np.arange(depth + 1)[:, None]))
        best = int(np.argmax(tokens / seconds))
        self.steps_at_zero = 0 if best else self.steps_at_zero + 1
        if self.steps_at_zero == PROBE:
            self.steps_at_zero = 0
            return 1
        return best

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = min(int(outcome.verified.max()), len(self._log_depth))
        if depth == 0:
            return
        slot = batch.slot
        judged, accepted = verdicts(outcome, depth)
        row, position = judged.nonzero()
        features = np.stack([np.ones(len(row)), self._recent(slot)[row], self._log_depth[position]], axis=1)
        self.model.update(features, accepted[row, position])
        num_judged, num_accepted = judged.sum(axis=1), np.minimum(outcome.accepted, depth)
        fade = np.where(num_judged > 0, FADE, 1.0)
        self.judged[slot] = fade * self.judged[slot] + num_judged
        self.accepted[slot] = fade * self.accepted[slot] + num_accepted
        self.all_judged = ENGINE_FADE * self.all_judged + float(num_judged.sum())
        self.all_accepted = ENGINE_FADE * self.all_accepted + float(num_accepted.sum())

    def _recent(self, slots: Ints) -> Floats:
        """logit of the recent acceptance, float[B]."""
        engine = OWN * self.all_accepted / self.all_judged
        return logit((self.accepted[slots] + engine) / (self.judged[slots] + OWN))
