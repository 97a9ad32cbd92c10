"""AdaSD (arXiv 2512.11280), LOSSY: one adaptive threshold ends a draft, another accepts what the exact test rejects.

RECONSTRUCTION [O]. Confirmed [A]: no hyperparameters, no training, both thresholds updated in real time; a threshold on
draft entropy stops drafting, one on the Jensen-Shannon distance accepts. The update formulas are not public; ours:

    stop after a token of entropy H > tau_H        tau_H: midpoint of the running means of H over accepted and over
                                                   rejected tokens; no stop until both kinds were seen
    accept also if JSD <= tau_J                    the acceptance rule `adasd`, see acceptance_rules.py

Hooks: lengths, stop, accept (by its rule), observe. State per engine: cumulative means, no constants. With
`--acceptance-rule lossless` the stop alone is left.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask, Outcome, Signals
from sim.policies.acceptance_rules import Midpoint
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import verdicts
from traces.errors import InputError

LARGEST_ENTROPY = 20.0
"""Nats; an infinite or undefined entropy counts as this."""


@policies.register("adasd")
class AdaSD(LengthPolicy):
    """LOSSY, our RECONSTRUCTION of AdaSD (arXiv 2512.11280): adaptive entropy stop, accepts by Jensen-Shannon distance.

    k    longest draft; the paper names no limit
    """

    name = "adasd"
    source = "arXiv 2512.11280 [A], RECONSTRUCTION [O]"
    note = "policy adasd is our reconstruction of AdaSD (arXiv 2512.11280): its update formulas are not public"
    lossless = False
    acceptance_rule = "adasd"

    def __init__(self, context: PolicyContext, k: int = 20) -> None:
        if k < 0:
            raise InputError(f"policy adasd: k is {k}, expected 0 or more")
        self.max_length = k
        self.threshold = Midpoint()

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        if self.threshold.value is None:
            return np.zeros(len(batch), np.bool_)
        return ~(signals.draft_entropy[:, depth - 1] <= self.threshold.value)  # an undefined one stops

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.verified.max())
        if depth:
            judged, accepted = verdicts(outcome, depth)
            entropy = np.fmin(outcome.signals.draft_entropy[:, :depth], LARGEST_ENTROPY)
            self.threshold.update(entropy, accepted, judged & ~accepted)
