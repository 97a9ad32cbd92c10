"""Acceptance held near a target: k of each sequence up or down by one (vLLM pull request 26504).

    r = mean acceptance rate of the sequence's last 10 steps, once there are 3
    k <- k + 1 if r >= target + 0.05;  k - 1 if r <= target - 0.05;  within 1..k_max, which is also where it starts

Hooks: observe, lengths; lossless. Constants of the pull request [C]; it was read in a port of it. A step without a
draft (the end of a request) is no evidence and changes nothing [O]; a preempted sequence starts anew [O]. From k = 1 a
sequence whose every token is accepted is back at k_max after 10 + k_max steps.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.history import History
from traces.errors import InputError

STEPS = 10
"""Steps that the mean is taken over [C]."""
FEWEST = 3
"""Steps before k moves [C]."""
MARGIN = 0.05
"""Distance from the target within which k stays [C]."""


@policies.register("acceptance-target")
class AcceptanceTarget(LengthPolicy):
    """k per sequence, one up or down to hold its acceptance rate near `target` (vLLM pull request 26504).

    k       longest draft, and the first
    target  acceptance rate, accepted / drafted tokens of a step
    """

    name = "acceptance-target"
    source = "vLLM pull request 26504 [C]"

    def __init__(self, context: PolicyContext, k: int = 8, target: float = 0.7) -> None:
        if k < 1 or not 0 < target < 1:
            raise InputError(f"policy acceptance-target: expected k >= 1, 0 < target < 1, got k={k}, target={target}")
        self.max_length, self.target = k, target
        self.k = np.full(context.num_slots, k, np.int64)
        self.rates = History(context.num_slots, STEPS)
        self._age = np.arange(STEPS - 1, -1, -1)

    def begin(self, slots: Ints) -> None:
        self.k[slots] = self.max_length
        self.rates.clear(slots)

    def lengths(self, batch: DecodeBatch) -> Ints:
        return self.k[batch.slot]

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        drafted = outcome.proposed > 0
        rate = outcome.accepted / np.maximum(outcome.proposed, 1)
        values = self.rates.append(batch.slot, rate[:, None], drafted.astype(np.int64))
        count = self.rates.count[batch.slot]
        mean = np.where(self._age < count[:, None], values, 0.0).sum(axis=1) / np.maximum(count, 1)
        # 1e-9: 0.7 + 0.05 is a digit above 0.75, and rates are often multiples of a quarter
        up, down = mean >= self.target + MARGIN - 1e-9, mean <= self.target - MARGIN + 1e-9
        move = np.where(drafted & (count >= FEWEST), up.astype(np.int64) - down, 0)
        self.k[batch.slot] = np.clip(self.k[batch.slot] + move, 1, self.max_length)
