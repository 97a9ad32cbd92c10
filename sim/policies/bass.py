"""BASS (arXiv 2404.15778): one k for the batch, after how far its luckiest sequence came.

    some sequence accepted all l        l <- min(l + 2, 32), s <- 0
    none did, the best accepted x       l <- max(1, x, l - ceil(l / 10) - s), s <- 1

so that l falls faster from the second failure in a row on. l starts at 7. Hooks: observe, lengths; lossless.

Rule and constants written down from memory of the paper's algorithm 1, unchecked. A step whose drafts were all cut
short of l (by a cap, by the ends of requests) counts as accepted if the longest one was [O]; a step without drafts
changes nothing [O]. From l = 1 the limit is reached after 16 full acceptances.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError

INCREASE = 2
TENTH = 10


@policies.register("bass")
class BASS(LengthPolicy):
    """One k for the batch: +2 if some sequence accepts all of it, else down towards the best one's run.

    initial, limit  first and longest draft
    """

    name = "bass"
    source = "arXiv 2404.15778, from memory [P]"

    def __init__(self, context: PolicyContext, initial: int = 7, limit: int = 32) -> None:
        if not 1 <= initial <= limit:
            raise InputError(f"policy bass: expected 1 <= initial <= limit, got initial={initial}, limit={limit}")
        self.max_length = min(limit, context.max_draft_tokens)
        self.length = min(initial, self.max_length)
        self.failures = 0  # s: whether the last step was one

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.length, np.int64)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        drafted, best = int(outcome.proposed.max()), int(outcome.accepted.max())
        if drafted == 0:
            return
        if best == drafted:
            self.length, self.failures = min(self.length + INCREASE, self.max_length), 0
        else:
            self.length = max(1, best, self.length - -(-self.length // TENTH) - self.failures)
            self.failures = 1
