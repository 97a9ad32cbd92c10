"""How long each sequence drafts in a step: the policy's lengths, the straggler cap, what may still be emitted."""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.acceptance_rules import AcceptanceRule
from sim.policies.base import LengthPolicy
from sim.policies.caps import Cap, LearningCap, capped
from traces.errors import InputError


class Speculation:
    """A length policy with its cap and its acceptance rule, None for the lossless one.

    `speculates` is false for a policy that never drafts: no draft model is loaded.
    """

    def __init__(
        self, policy: LengthPolicy, cap: Cap, max_draft_tokens: int, rule: AcceptanceRule | None = None
    ) -> None:
        self.policy = policy
        self.cap = cap
        self.max_draft_tokens = max_draft_tokens
        self.rule = None if rule is None or rule.lossless else rule
        self.speculates = policy.max_length > 0
        self.stop = policy.stop if "stop" in policy.hooks() else None
        self.trim = policy.trim if "trim" in policy.hooks() else None
        self.accept = self.rule.passes if self.rule else None

    def begin(self, slots: Ints) -> None:
        """Sequences took these slots."""
        self.policy.begin(slots)
        if isinstance(self.cap, LearningCap):
            self.cap.begin(slots)

    def lengths(self, batch: DecodeBatch) -> Ints:
        """Draft lengths, int64[B]: never negative, never past the end of the request (the step itself emits one)."""
        lengths = self.policy.lengths(batch)
        if len(lengths) != len(batch) or lengths.dtype.kind not in "iu" or lengths.min() < 0:
            raise InputError(f"policy {self.policy.name}: lengths must be {len(batch)} integers >= 0, got {lengths}")
        if not self.policy.applies_cap:
            lengths = capped(batch, lengths, self.cap)
        return np.minimum(np.minimum(lengths, self.max_draft_tokens), batch.remaining - 1)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        """After verification: the cap learns from it, then policy and rule; the policy may ask the cap."""
        if isinstance(self.cap, LearningCap):
            self.cap.observe(batch, outcome)
        self.policy.observe(batch, outcome)
        if self.rule:
            self.rule.observe(batch, outcome)


def fit_to_budget(lengths: Ints, budget: int) -> Ints:
    """Shorten the longest drafts until their sum fits the token budget: all get the same limit, as with a cap.

    Four sequences with k = 7 and 12 tokens of budget left draft 3 each.
    """
    if int(lengths.sum()) <= budget:
        return lengths
    ascending = np.sort(lengths)
    before = np.concatenate([[0], np.cumsum(ascending)[:-1]])
    # with limit c, sequences shorter than c keep theirs: sum = before[i] + c * (B - i) for the i of the first >= c
    limits = (budget - before) // (len(ascending) - np.arange(len(ascending)))
    limit = int(limits[np.argmax(limits < ascending)])
    return np.minimum(lengths, max(limit, 0))
