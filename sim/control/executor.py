"""The protocol between the control plane and whatever produces tokens: the simulator's replay or real models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Floats, Ints

Values = NDArray[np.float32] | NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Plan:
    """One engine step, as scheduled.

    decode, lengths     sequences that decode and how many tokens each may draft: int64[B]; KV slots are reserved for
                        1 + lengths each
    prefill_*           sequences that prefill a chunk: slot, first token of the chunk (= tokens before it), its tokens,
                        row of the workload
    speculates          whether this engine drafts at all, so that the draft must prefill too
    admitted            slots taken in this step
    preempted           sequences thrown out to make room
    kv_blocks_used      reserved while the step runs
    """

    decode: DecodeBatch
    lengths: Ints
    speculates: bool
    prefill_slot: list[int] = field(default_factory=list)
    prefill_context: list[int] = field(default_factory=list)
    prefill_tokens: list[int] = field(default_factory=list)
    prefill_request: list[int] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    preempted: int = 0
    kv_blocks_used: int = 0

    @property
    def num_seqs(self) -> int:
        return len(self.decode) + len(self.prefill_slot)


class Signals(Protocol):
    """Per proposed position, float[B, D] with D >= the longest draft; entries beyond a sequence's draft mean nothing.

    Entropies and divergences in nats; jsd is the distance (square root of the divergence). The draft's are known
    before verification, the others after it. target_prob is p of the proposed token; in sampled windows that of the
    token that is rejected there, if one is. Executors compute each only when it is asked for.
    """

    @property
    def draft_entropy(self) -> Values: ...
    @property
    def draft_prob(self) -> Values: ...
    @property
    def kld(self) -> Values: ...
    @property
    def jsd(self) -> Values: ...
    @property
    def target_entropy(self) -> Values: ...
    @property
    def target_prob(self) -> Values: ...


@dataclass(slots=True)
class StepTime:
    """Seconds of one step by part; see STEP_COLUMNS for what each holds. The first four add up to the step."""

    draft_s: float
    verify_s: float
    prefill_s: float
    host_s: float
    switch_s: float = 0.0
    hidden_draft_s: float = 0.0
    wasted_draft_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.draft_s + self.verify_s + self.prefill_s + self.host_s


@dataclass(slots=True)
class Outcome:
    """What verification said. int64[B] each.

    proposed        tokens drafted
    verified        leading part of them that the target saw
    accepted        leading run of them that it accepted
    emitted         tokens that follow from it: accepted + 1 (a correction or a bonus), fewer if the text ends inside
    ended           bool[B]: the text ended (EOS), whatever its limit
    draft_tokens    tokens of the sequence that are now, correctly, in the draft's KV cache
    signals         of every proposed position, also those after the first rejection
    prefill_ended   slots whose text ended with the token that their prefill gave
    by_rule         bool[B, D]: accepted tokens that only a lossy acceptance rule let stand; None without such a rule
    """

    proposed: Ints
    verified: Ints
    accepted: Ints
    emitted: Ints
    ended: NDArray[np.bool_]
    draft_tokens: Ints
    signals: Signals
    time: StepTime
    prefill_ended: frozenset[int] = frozenset()
    by_rule: Mask | None = None

    def lossy_tokens(self, kept: Ints) -> Ints | int:
        """How many of the first `kept` accepted tokens only the acceptance rule let stand, int64[B]; 0 without one."""
        if self.by_rule is None:
            return 0
        return np.asarray((self.by_rule & (np.arange(self.by_rule.shape[1]) < kept[:, None])).sum(axis=1))


Stop = Callable[[DecodeBatch, int, Signals], NDArray[np.bool_]]
"""(batch, depth, signals) -> who stops after its draft token number `depth` (1-based)."""

Trim = Callable[[DecodeBatch, Ints, Signals], Ints]
"""(batch, proposed, signals) -> how many of the proposed tokens are verified."""

Accept = Callable[[DecodeBatch, int, Signals], Mask]
"""(batch, depth, signals) -> which of the first `depth` draft tokens may stand though they fail the exact test."""


def standing(exact: Mask, allowed: Mask, verified: Ints) -> tuple[Ints, Mask]:
    """The accepted run under a lossy rule, int64[B], and which of its tokens only the rule let stand, bool[B, D].

    exact: bool[B, D], tokens that pass the target's own test given those before them; allowed: what an `Accept` said of
    the same tokens; verified: int64[B], how many of them there are.
    """
    position = np.arange(exact.shape[1])
    stands = (exact | allowed) & (position < verified[:, None])
    accepted = np.logical_and.accumulate(stands, axis=1).sum(axis=1)
    return accepted, allowed & ~exact & (position < accepted[:, None])


class Executor(Protocol):
    """Drafts and verifies what the scheduler planned."""

    max_draft_tokens: int
    """The longest draft it can produce."""

    def run(self, plan: Plan, stop: Stop | None, trim: Trim | None, accept: Accept | None = None) -> Outcome:
        """Draft, verify and prefill one step. `accept` is a lossy acceptance rule; None is lossless."""

    def release(self, slots: list[int]) -> None:
        """The sequences of these slots have left: they ended or were preempted."""

    def accepted_runs(self, batch: DecodeBatch) -> Ints:
        """How many tokens of the longest draft would be accepted now: int64[B]. Only a replay knows (for `oracle`)."""

    def acceptance_chances(self, batch: DecodeBatch) -> Values:
        """Of each token of the longest draft, given those before it, now: float[B, K]. Only a replay knows."""

    def step_seconds(self, batch: DecodeBatch, lengths: Ints) -> float:
        """Predicted seconds of a step of these sequences with these draft lengths, without prefill."""

    def step_seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        """`step_seconds` of N alternatives of the same step at once: lengths int64[N, B] -> float64[N]."""

    def verify_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        """The step without its drafting, if so much of each draft is verified: int64[N, B] -> float64[N] seconds."""
