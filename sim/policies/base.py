"""What a length policy is. A new policy is one new file in this folder: subclass, register, done.

@policies.register("half")
class Half(LengthPolicy):
    '''Half of the last accepted run.'''
    ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome, Signals, Values
from sim.policies.caps import Cap
from traces.registry import Registry

HOOKS = ("lengths", "stop", "trim", "accept", "observe")
LARGEST_OPTION = 2**31 - 1
"""Of whole-number options: sums over a batch stay whole numbers of 64 bits."""


@dataclass(frozen=True)
class PolicyContext:
    """What a policy may know of the engine it serves.

    num_slots         sequences the engine runs at most; state is one array of this length per quantity
    max_draft_tokens  the longest draft the executor can produce
    cap               the straggler cap, for policies that apply it themselves
    accepted_runs     batch -> the run that will be accepted, int64[B]; only a replay knows
    step_seconds      (batch, lengths) -> predicted seconds of that step, by the cost model
    step_seconds_many (batch, int64[N, B]) -> the same for N alternatives of one step, float64[N]
    verify_seconds_many  the same without drafting: seconds to verify so much of each draft, float64[N]
    seed              for policies that draw; fixed by the run's seed and the engine
    acceptance_chances  batch -> chance of each token of the longest draft to be accepted, given those before it,
                      float[B, K]; only a replay knows
    """

    num_slots: int
    max_draft_tokens: int
    cap: Cap
    accepted_runs: Callable[[DecodeBatch], Ints]
    step_seconds: Callable[[DecodeBatch, Ints], float]
    step_seconds_many: Callable[[DecodeBatch, Ints], Floats]
    verify_seconds_many: Callable[[DecodeBatch, Ints], Floats]
    seed: int
    acceptance_chances: Callable[[DecodeBatch], Values]


class LengthPolicy:
    """Decides how many tokens each sequence drafts. Works on arrays over the batch, never on one sequence.

    Options are the keyword arguments of `__init__` after the context, given as `NAME:key=value,...`; the first may
    go without its key. A bad value raises InputError.
    """

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    """Where the rule comes from, with its confidence mark: [C] official code, [P] paper, [A] abstract, [O] our own."""
    note: ClassVar[str] = ""
    """What a reader of its results must know, e.g. that it is a reconstruction."""
    lossless: ClassVar[bool] = True
    default_cap: ClassVar[str] = "none"
    acceptance_rule: ClassVar[str] = "lossless"
    """The rule that it brings: how it accepts (sim/policies/acceptance_rules.py), unless the user names another."""

    applies_cap: bool = False
    """True if the policy applies the cap to its own state; the engine then leaves its lengths alone."""
    max_length: int
    """The longest draft it will ever ask for; 0 means the draft model is not needed."""

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """The moments at which this policy acts."""
        return tuple(name for name in HOOKS if cls._acts(name))

    @classmethod
    def _acts(cls, hook: str) -> bool:
        if hook == "accept":
            return cls.acceptance_rule != LengthPolicy.acceptance_rule
        return getattr(cls, hook) is not getattr(LengthPolicy, hook)

    def begin(self, slots: Ints) -> None:
        """Sequences took these slots: forget what was known of their predecessors."""

    def lengths(self, batch: DecodeBatch) -> Ints:
        """Before drafting: draft length per sequence, int64[B], >= 0. Never called with an empty batch."""
        raise NotImplementedError

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> NDArray[np.bool_]:
        """During drafting, after draft token number `depth` (from 1): who stops, bool[B]. Override to use."""
        raise NotImplementedError

    def trim(self, batch: DecodeBatch, proposed: Ints, signals: Signals) -> Ints:
        """After drafting: how many proposed tokens are verified, int64[B]. Override to use."""
        raise NotImplementedError

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        """After verification: learn from every proposed position, also those after the first rejection."""


policies: Registry[type[LengthPolicy]] = Registry("policy")
