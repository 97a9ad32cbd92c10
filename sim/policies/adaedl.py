"""AdaEDL (arXiv 2410.18351): stop drafting when a lower bound on the chance of acceptance, from draft entropy, is low.

    stop after a token of entropy H if 1 - sqrt(gamma H) < lambda
    after verification, r = accepted / proposed:    R <- 0.5 R + 0.5 r
        lambda' = lambda + 0.01 if R < 0.9;  lambda - 0.01 if R > 0.9 and accepted = k;  else lambda
        lambda <- 0.9 lambda + 0.1 lambda'                  lambda starts at 0.5, R at 0

Hooks: lengths, stop, observe; lossless. The token that stops is kept. gamma 0.2 [P]; the rest, lambda and R per
sequence among it, from DSDE's copy [C], where gamma is 0.1, no draft stops before six tokens, and entropy is taken with
ln(p + 1e-9). lambda is not bounded there nor here: at R < 0.9 it rises by 0.001 a step, passes 1 after some 500, and
then every draft ends at min_spec tokens.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask, Outcome, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError

LAMBDA, STEP, KEEP = 0.5, 0.01, 0.9
"""Start of the threshold, how far a target lies from it, and how much of it is kept [C]."""
WANTED = 0.9
"""The running acceptance that the threshold steers to [C]."""


@policies.register("adaedl")
class AdaEDL(LengthPolicy):
    """Stop on an entropy bound of acceptance whose threshold follows each sequence's acceptance (arXiv 2410.18351).

    k         longest draft, at most what can be drafted; "all accepted" means k tokens, not all that were drafted
    gamma     weight of the entropy
    min_spec  no stop before so many tokens
    scope     sequence: each stops by itself; batch: the first to stop ends the draft for all, as in DSDE's baseline
    """

    name = "adaedl"
    source = "arXiv 2410.18351 [P]; updates from DSDE's copy [C]"

    def __init__(
        self,
        context: PolicyContext,
        k: int = 20,
        gamma: float = 0.2,
        min_spec: int = 1,
        scope: Literal["sequence", "batch"] = "sequence",
    ) -> None:
        if k < 0 or min_spec < 1 or not 0 <= gamma < float("inf"):
            raise InputError(
                f"policy adaedl: expected k >= 0, gamma >= 0 and min_spec >= 1, got k={k}, gamma={gamma}, "
                f"min_spec={min_spec}"
            )
        self.max_length = min(k, context.max_draft_tokens)
        self.gamma, self.min_spec, self.scope = gamma, min_spec, scope
        self.threshold = np.full(context.num_slots, LAMBDA)
        self.acceptance = np.zeros(context.num_slots)

    def begin(self, slots: Ints) -> None:
        self.threshold[slots] = LAMBDA
        self.acceptance[slots] = 0.0

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        if depth < self.min_spec:
            return np.zeros(len(batch), np.bool_)
        entropy = np.maximum(signals.draft_entropy[:, depth - 1], 0.0)
        below: Mask = 1.0 - np.sqrt(self.gamma * entropy) < self.threshold[batch.slot]
        if self.scope == "batch":
            # a draft that ended at its request's end has nothing at this depth; any other limit is the same for all
            below[:] = (below & (batch.remaining > depth)).any()
        return below

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        rows = outcome.proposed > 0
        slots, accepted = batch.slot[rows], outcome.accepted[rows]
        rate = 0.5 * self.acceptance[slots] + 0.5 * accepted / outcome.proposed[rows]
        self.acceptance[slots] = rate
        threshold = self.threshold[slots]
        down = (rate > WANTED) & (accepted == self.max_length)
        target = threshold + STEP * ((rate < WANTED).astype(np.int64) - down)
        self.threshold[slots] = KEEP * threshold + (1 - KEEP) * target
