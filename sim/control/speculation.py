"""How long each sequence drafts in a step: the policy's lengths, the straggler cap, what may still be emitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask, Outcome, Signals
from sim.policies.acceptance_rules import AcceptanceRule
from sim.policies.base import LengthPolicy
from sim.policies.caps import Cap, LearningCap, capped
from sim.policies.own import FAILURES, blame, label
from traces.errors import InputError


class Speculation:
    """A length policy with its cap and its acceptance rule, None for the lossless one.

    `speculates` is false for a policy that never drafts: no draft model is loaded. What the hooks of a user's policy
    raise becomes an InputError with its place; what the hooks of any policy return is looked at, and refused if it is
    not what LengthPolicy asks for.
    """

    def __init__(
        self, policy: LengthPolicy, cap: Cap, max_draft_tokens: int, rule: AcceptanceRule | None = None
    ) -> None:
        self.policy = policy
        self.cap = cap
        self.max_draft_tokens = max_draft_tokens
        self.rule = None if rule is None or rule.lossless else rule
        self.speculates = policy.max_length > 0
        self.stop = self._stop if "stop" in policy.hooks() else None
        self.trim = self._trim if "trim" in policy.hooks() else None
        self.accept = self.rule.passes if self.rule else None

    def notes(self) -> list[str]:
        """What every output has to say of rule and policy, the lossy rule first."""
        rule, notes = self.rule, []
        if rule:
            notes.append(
                f"LOSSY: acceptance rule {rule.name} ({rule.source}) lets tokens stand that the target rejects: "
                "the text is not the target's"
            )
        return [*notes, *filter(None, dict.fromkeys([rule.note if rule else "", self.policy.note]))]

    def begin(self, slots: Ints) -> None:
        """Sequences took these slots."""
        self._ask("begin", self.policy.begin, slots)
        if isinstance(self.cap, LearningCap):
            self.cap.begin(slots)

    def lengths(self, batch: DecodeBatch) -> Ints:
        """Draft lengths, int64[B]: never negative, never past the end of the request (the step itself emits one)."""
        lengths: Ints = self._ask("lengths", self.policy.lengths, batch)
        if not (_is_array(lengths, "iu", len(batch)) and lengths.min() >= 0):
            raise self._wrong("lengths", f"{len(batch)} integers >= 0", lengths)
        lengths = lengths.astype(np.int64, copy=False)
        if not self.policy.applies_cap:
            lengths = capped(batch, lengths, self.cap)
        return np.minimum(np.minimum(lengths, self.max_draft_tokens), batch.remaining - 1)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        """After verification: the cap learns from it, then policy and rule; the policy may ask the cap."""
        if isinstance(self.cap, LearningCap):
            self.cap.observe(batch, outcome)
        self._ask("observe", self.policy.observe, batch, outcome)
        if self.rule:
            self.rule.observe(batch, outcome)

    def _stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        stops: Mask = self._ask("stop", self.policy.stop, batch, depth, signals)
        if not _is_array(stops, "b", len(batch)):
            raise self._wrong("stop", f"{len(batch)} booleans", stops)
        return stops

    def _trim(self, batch: DecodeBatch, proposed: Ints, signals: Signals) -> Ints:
        verified: Ints = self._ask("trim", self.policy.trim, batch, proposed, signals)
        if not (_is_array(verified, "iu", len(batch)) and verified.min() >= 0 and (verified <= proposed).all()):
            raise self._wrong("trim", f"{len(batch)} integers from 0 to what was proposed", verified)
        return verified.astype(np.int64, copy=False)

    def _ask(self, name: str, hook: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return hook(*arguments)
        except FAILURES as error:
            blame(type(self.policy), name, error)
            raise

    def _wrong(self, hook: str, expected: str, got: object) -> InputError:
        return InputError(f"{label(type(self.policy))}: {hook} must be {expected}, got {got!r:.80}")


def _is_array(values: object, kinds: str, length: int) -> bool:
    """Whether a hook gave one value per sequence, of one of these kinds of numpy."""
    return isinstance(values, np.ndarray) and values.shape == (length,) and values.dtype.kind in kinds


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
