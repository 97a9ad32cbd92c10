"""Feed a policy scripted verifications, without an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.control.batch import DecodeBatch
from sim.control.executor import Outcome, StepTime
from sim.policies import LengthPolicy, PolicyContext, make_cap, make_policy

StepSeconds = Callable[[DecodeBatch, np.ndarray], np.ndarray]


def free(batch: DecodeBatch, lengths: np.ndarray) -> np.ndarray:
    """A cost model in which a draft costs nothing: every step takes one second."""
    return np.ones(len(lengths))


def context(
    num_slots: int = 8,
    cap: str = "none",
    max_draft_tokens: int = 32,
    step_seconds_many: StepSeconds = free,
    seed: int = 0,
    verify_seconds_many: StepSeconds | None = None,
) -> PolicyContext:
    made = PolicyContext(
        num_slots=num_slots,
        max_draft_tokens=max_draft_tokens,
        cap=None,
        accepted_runs=lambda batch: np.zeros(len(batch), np.int64),
        acceptance_chances=lambda batch: np.zeros((len(batch), max_draft_tokens)),
        step_seconds=lambda batch, lengths: float(step_seconds_many(batch, lengths[None])[0]),
        step_seconds_many=step_seconds_many,
        verify_seconds_many=verify_seconds_many or step_seconds_many,
        seed=seed,
    )
    return replace(made, cap=make_cap(cap, made))


def policy(
    spec: str,
    num_slots: int = 8,
    cap: str = "none",
    max_draft_tokens: int = 32,
    step_seconds_many: StepSeconds = free,
    seed: int = 0,
    verify_seconds_many: StepSeconds | None = None,
) -> LengthPolicy:
    made = make_policy(spec, context(num_slots, cap, max_draft_tokens, step_seconds_many, seed, verify_seconds_many))
    made.begin(np.arange(num_slots))
    return made


def batch(slots: Sequence[int], remaining: int = 1000, temperature: float | np.ndarray = 0.0) -> DecodeBatch:
    slot = np.array(slots, np.int64)
    same = np.ones_like(slot)
    return DecodeBatch(slot, slot, 100 * same, 99 * same, same, remaining * same, temperature, len(slot), 0)


@dataclass
class GivenSignals:
    """The same float[B, D] table for every signal that a test does not care about."""

    kld: np.ndarray
    draft_entropy: np.ndarray
    draft_prob: np.ndarray
    jsd: np.ndarray
    target_entropy: np.ndarray
    target_prob: np.ndarray


def outcome(proposed: Sequence[int], accepted: Sequence[int], kld: Sequence[Sequence[float]]) -> Outcome:
    depth = max(1, *map(len, kld))
    table = np.array([[*row, *[np.nan] * (depth - len(row))] for row in kld])
    k, a = np.array(proposed, np.int64), np.array(accepted, np.int64)
    signals = GivenSignals(table, table, table, table, table, table)
    ended = np.zeros(len(k), np.bool_)
    return Outcome(k, k, a, a + 1, ended, k, signals, StepTime(0, 0, 0, 0))


def play(rule: LengthPolicy, accepted: Sequence[int]) -> list[int]:
    """k of each step of one sequence, and the k after the last; at most k tokens are accepted."""
    seen = []
    for most in accepted:
        k = int(rule.lengths(batch([0]))[0])
        seen.append(k)
        rule.observe(batch([0]), outcome([k], [min(most, k)], [[0.1] * k]))
    return [*seen, int(rule.lengths(batch([0]))[0])]
