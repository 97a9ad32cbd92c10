"""The heuristic schedule of transformers' assisted generation: two more after a full success, one less otherwise.

    k <- k + 2 if all that was drafted is accepted, else max(1, k - 1)                 start 20

Hooks: lengths, observe; lossless. "All" is what was drafted, also where a draft was cut short [C]. k belongs to a
sequence and starts anew with the next one, which transformers calls `heuristic_transient`; its default schedule is
`constant`, here `fixed:k=20`. Transformers sets no upper bound; k stops where nothing longer can be drafted, so that it
need not come down first from where it never was [O]. A step without a draft changes nothing [O].
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError


@policies.register("hf-heuristic")
class HFHeuristic(LengthPolicy):
    """Per sequence: k + 2 after a draft that is accepted whole, else k - 1, at least 1 (transformers). k: the first."""

    name = "hf-heuristic"
    source = "transformers 5.24 [C]"

    def __init__(self, context: PolicyContext, k: int = 20) -> None:
        if k < 1:
            raise InputError(f"policy hf-heuristic: k is {k}, expected 1 or more")
        self.max_length = context.max_draft_tokens
        self.start = min(k, self.max_length)
        self.k = np.full(context.num_slots, self.start, np.int64)

    def begin(self, slots: Ints) -> None:
        self.k[slots] = self.start

    def lengths(self, batch: DecodeBatch) -> Ints:
        return self.k[batch.slot]

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        k = self.k[batch.slot]
        longer = np.where(
            outcome.accepted == outcome.proposed, np.minimum(k + 2, self.max_length), np.maximum(k - 1, 1)
        )
        self.k[batch.slot] = np.where(outcome.proposed > 0, longer, k)
