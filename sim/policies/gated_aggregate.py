"""Gated aggregate (inference-lab): one depth for the whole batch, from the sum of its sequences' survival chains.

    chain[i, d] = prod_{j <= d} sigmoid(w0 + w1 c_i + w2 j)
    c_i = mean logit of the draft probabilities of sequence i, newest weighted most
    g = argmax_g (B + sum_i sum_{d <= g} chain[i, d]) / T(B, g)

Hooks: lengths, observe; lossless. The objective and its options cooldown, max_step and switch cost [C]. The depth is
chosen before drafting, when this step's confidences are not there yet: c_i stands for them [O]. At g = 0 nothing is
learned, so that now and then one token is drafted [O].
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import OnlineLogistic, chance, logit, verdicts
from traces.errors import InputError

FADE = 0.7
"""What is left of the older confidence after a step that drafted [O]."""
PROBE = 64
"""Steps at depth 0 after which one token is drafted [O]."""


@policies.register("gated-aggregate")
class GatedAggregate(LengthPolicy):
    """One depth for the batch that maximises its expected tokens per second (inference-lab).

    k               deepest draft
    cooldown        steps that a depth is kept after it changed
    max_step        largest change of depth in one step; 0: any
    switch_cost_ms  charged to every depth but the present one when they are compared
    """

    name = "gated-aggregate"
    source = "inference-lab [C]; confidence before drafting, probing [O]"

    def __init__(
        self, context: PolicyContext, k: int = 8, cooldown: int = 0, max_step: int = 0, switch_cost_ms: float = 0.0
    ) -> None:
        if min(k, cooldown, max_step) < 0 or not 0 <= switch_cost_ms < float("inf"):
            raise InputError(
                f"policy {self.name}: expected k, cooldown, max_step and switch_cost_ms >= 0, got k={k}, "
                f"cooldown={cooldown}, max_step={max_step}, switch_cost_ms={switch_cost_ms}"
            )
        self.max_length = min(k, context.max_draft_tokens)
        self.cooldown, self.max_step, self.switch_cost_s = cooldown, max_step, switch_cost_ms / 1e3
        self.model = OnlineLogistic((0.0, 1.0, 0.0))
        self.depth = 0
        self.since_change = cooldown
        self.steps_at_zero = 0
        self.started = False
        self.confidence = np.zeros(context.num_slots)
        self.known = np.zeros(context.num_slots, np.bool_)
        self.typical = 1.0  # confidence of a sequence that has not drafted yet: the mean of the others
        self._seconds = context.step_seconds_many

    def begin(self, slots: Ints) -> None:
        self.known[slots] = False

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.minimum(self._gate(batch, self._chains(batch)), batch.remaining - 1)

    def _chains(self, batch: DecodeBatch) -> Floats:
        """Survival per sequence and depth, float[B, k]; 0 behind the end of a request."""
        slot = batch.slot
        confidence = np.where(self.known[slot], self.confidence[slot], self.typical)
        w = self.model.weights
        depth = np.arange(1, self.max_length + 1)[:, None]
        survival = np.cumprod(chance((w[0] + w[1] * confidence) + w[2] * depth), axis=0)
        return np.where(depth < batch.remaining, survival, 0.0).T

    def _gate(self, batch: DecodeBatch, chains: Floats) -> int:
        """The depth of this step."""
        if self.since_change < self.cooldown:
            self.since_change += 1
            return self.depth
        depths = np.arange(self.max_length + 1)
        seconds = self._seconds(batch, np.minimum(depths[:, None], batch.remaining - 1))
        expected = len(batch) + np.concatenate([[0.0], np.cumsum(chains.sum(axis=0))])
        rate = expected / (seconds + self.switch_cost_s * (self.started and depths != self.depth))
        if self.max_step and self.started:
            rate = np.where(abs(depths - self.depth) <= self.max_step, rate, 0.0)
        best = int(np.argmax(rate))
        if best != self.depth:
            self.since_change = 0 if self.started else self.cooldown
        self.depth, self.started = best, True
        self.steps_at_zero = 0 if best else self.steps_at_zero + 1
        if self.steps_at_zero == PROBE:
            self.steps_at_zero = 0
            return min(1, self.max_length)
        return best

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.proposed.max())
        if depth == 0:
            return
        drafted = np.arange(depth) < outcome.proposed[:, None]
        confidence = np.where(drafted, logit(outcome.signals.draft_prob[:, :depth].astype(np.float64)), 0.0)
        self._learn(batch, outcome, depth)
        rows = outcome.proposed > 0
        slot, new = batch.slot[rows], confidence[rows].sum(axis=1) / outcome.proposed[rows]
        older = np.where(self.known[slot], self.confidence[slot], new)
        self.confidence[slot] = FADE * older + (1 - FADE) * new
        self.known[slot] = True
        self.typical += 0.02 * (float(new.mean()) - self.typical)

    def _learn(self, batch: DecodeBatch, outcome: Outcome, depth: int) -> None:
        """From what the chains were made of: the confidence before this step."""
        judged, accepted = verdicts(outcome, depth)
        confidence = np.where(self.known[batch.slot], self.confidence[batch.slot], self.typical)
        place = judged.ravel().nonzero()[0]
        row, position = np.divmod(place, depth)
        features = np.empty((len(place), 3))
        features[:, 0] = 1.0
        features[:, 1] = confidence[row]
        features[:, 2] = position + 1
        self.model.update(features, accepted.take(place))
