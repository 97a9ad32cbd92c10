"""The goodput cap: how long the longest drafts may be, by what they cost everyone [O].

    c* = argmax_c  sum_i (1 + a_i + a_i^2 + ... + a_i^min(k_i, c)) / T(B, min(k, c))        ties: the smallest c

T is the cost model's step. a_i, the acceptance of sequence i lately, is accepted / judged tokens of its own (judged:
the accepted run and the first rejection), older steps fading, mixed with the engine's, which stands for sequences that
have no past. A logistic model of depth and a_i, fitted online, in its place changed no mean TPOT of 16 runs by 0.4 %.

c may be 0: then nobody drafts, which teaches nothing, so that every 32nd such step in a row lets one token through. A
policy that caps its own state (dsde:preset=code) asks for the sequences that it counts, after verification.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome
from sim.policies.base import PolicyContext
from sim.policies.caps import LearningCap, caps
from sim.policies.survival import within

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
        self.steps_at_zero = 0
        self.max_draft_tokens = context.max_draft_tokens
        self._seconds = context.step_seconds_many

    def begin(self, slots: Ints) -> None:
        self.accepted[slots] = self.judged[slots] = 0.0

    def acceptance(self, slots: Ints) -> Floats:
        """a_i of the sequences in these slots, float[B]."""
        engine = self.all_accepted / self.all_judged
        return np.asarray((self.accepted[slots] + OWN * engine) / (self.judged[slots] + OWN))

    def __call__(self, batch: DecodeBatch, lengths: Ints) -> int:
        lengths = np.minimum(np.minimum(lengths, self.max_draft_tokens), batch.remaining - 1)
        depths = np.arange(int(lengths.max()) + 1)
        survival = within(self.acceptance(batch.slot)[:, None] ** depths[1:], lengths)
        tokens = len(batch) + np.concatenate([[0.0], np.cumsum(survival.sum(axis=0))])
        best = int(np.argmax(tokens / self._seconds(batch, np.minimum(lengths, depths[:, None]))))
        self.steps_at_zero = 0 if best else self.steps_at_zero + 1
        if self.steps_at_zero == PROBE:
            self.steps_at_zero = 0
            return 1
        return best

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        slot, accepted = batch.slot, outcome.accepted
        judged = np.minimum(accepted + 1, outcome.verified)
        if not judged.any():
            return
        fade = np.where(judged > 0, FADE, 1.0)
        self.judged[slot] = fade * self.judged[slot] + judged
        self.accepted[slot] = fade * self.accepted[slot] + accepted
        self.all_judged = ENGINE_FADE * self.all_judged + int(judged.sum())
        self.all_accepted = ENGINE_FADE * self.all_accepted + int(accepted.sum())
