"""Goodput (SmartSpec / TurboSpec, arXiv 2406.14066): the one k with the most expected tokens per second.

    k* = argmax_k  sum_i E[min(k, tokens left)] / T(B, k)        E(k) = 1 + a_1 + a_1 a_2 + ... + a_1 ... a_k
    acceptance=iid       all a_j equal: E(k) = (1 - a^(k+1)) / (1 - a)
    acceptance=position  a_j = chance of the j-th token if all before it were accepted

T: the cost model, with draft, verification and host. The goodput of k = 0 counts 1.1 times, so that speculation does
not start for next to nothing; ties go to the smaller k. Rates start at 0.7; a step weighs 0.15, those before it 0.85
[C]. Hooks: observe, lengths; lossless.

Ours [O]: the rate is accepted / judged over those weights, judged being the accepted run and the first rejection (the
original also tests what lies behind it, which no engine does now); ends of requests shorten E. At k = 0 nothing is
learned: every 32nd such step in a row drafts one token (`probe`; 0: none does, as in the original), so that
speculation comes back.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import verdicts
from traces.errors import InputError

START = 0.7
"""Acceptance before the first verdict, worth one verdict [C]."""
FADE = 0.85
"""Weight of a step's verdicts after one more step [C]."""
BONUS = 1.1
"""What k = 0 counts more [C]."""


@policies.register("goodput")
class Goodput(LengthPolicy):
    """One k for the batch, the one with the most expected tokens per second of the cost model (SmartSpec, TurboSpec).

    k           longest draft
    acceptance  iid: one running rate; position: one for each draft position
    probe       how many-th step in a row with k = 0 drafts one token; 0: none
    """

    name = "goodput"
    source = "arXiv 2406.14066 [C]; rates up to the first rejection, probing [O]"

    def __init__(
        self, context: PolicyContext, k: int = 8, acceptance: Literal["iid", "position"] = "iid", probe: int = 32
    ) -> None:
        if k < 0 or probe < 0:
            raise InputError(f"policy goodput: expected k >= 0 and probe >= 0, got k={k}, probe={probe}")
        self.max_length = min(k, context.max_draft_tokens)
        self.probe = probe
        rates = self.max_length if acceptance == "position" else 1
        self.accepted = np.full(rates, START)
        self.judged = np.ones(rates)
        self.steps_at_zero = 0
        self._seconds = context.step_seconds_many
        self._depths = np.arange(self.max_length + 1)[:, None]

    def lengths(self, batch: DecodeBatch) -> Ints:
        lengths = np.minimum(self._depths, batch.remaining - 1)
        rate = self.expected()[lengths].sum(axis=1) / self._seconds(batch, lengths)
        rate[0] *= BONUS
        best = int(np.argmax(rate))
        self.steps_at_zero = 0 if best else self.steps_at_zero + 1
        if self.steps_at_zero == self.probe > 0:
            best, self.steps_at_zero = min(1, self.max_length), 0
        return np.full(len(batch), best, np.int64)

    def expected(self) -> Floats:
        """Expected tokens of a draft of 0, 1, ... tokens, the step's own token included: float[k + 1]."""
        survival = np.ones(self.max_length + 1)
        survival[1:] = np.cumprod(np.broadcast_to(self.accepted / self.judged, self.max_length))
        return np.cumsum(survival)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.verified.max())
        if depth == 0:
            return
        judged, accepted = (mask.sum(axis=0) for mask in verdicts(outcome, depth))
        if len(self.judged) == 1:
            judged, accepted = judged.sum(keepdims=True), accepted.sum(keepdims=True)
        seen = (judged > 0).nonzero()[0]
        self.judged[seen] = FADE * self.judged[seen] + judged[seen]
        self.accepted[seen] = FADE * self.accepted[seen] + accepted[seen]
