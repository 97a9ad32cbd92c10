"""Steps of a policy with a stop rule, by hand: signals of one draft in, drafted tokens out, then a verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.control.executor import Outcome, StepTime
from sim.policies import LengthPolicy
from tests.sim.policy_driver import GivenSignals, batch

Rows = Sequence[Sequence[float]]


def signals_of(rows: Rows) -> GivenSignals:
    """The same values for every signal."""
    return GivenSignals(*[np.array(rows, np.float64)] * 6)


def drafted(rule: LengthPolicy, rows: Rows, slots: Sequence[int] | None = None, remaining: int = 1000) -> list[int]:
    """How many tokens each sequence drafts if its draft token number d carries the d-th value of its row."""
    now = batch(range(len(rows)) if slots is None else slots, remaining)
    signals = signals_of(rows)
    lengths = np.minimum(np.minimum(rule.lengths(now), signals.kld.shape[1]), now.remaining - 1)
    proposed, drafting = np.zeros_like(lengths), lengths > 0
    for depth in range(1, int(lengths.max()) + 1):
        proposed[drafting] = depth
        drafting &= ~rule.stop(now, depth, signals) & (lengths > depth)
        if not drafting.any():
            break
    return proposed.tolist()


def verify(rule: LengthPolicy, rows: Rows, proposed: Sequence[int], accepted: Sequence[int]) -> None:
    """What the target says of them."""
    k, a = np.array(proposed, np.int64), np.array(accepted, np.int64)
    ended = np.zeros(len(k), np.bool_)
    rule.observe(batch(range(len(k))), Outcome(k, k, a, a + 1, ended, k, signals_of(rows), StepTime(0, 0, 0, 0)))


def steps(rule: LengthPolicy, script: Sequence[tuple[Sequence[float], int]]) -> list[int]:
    """Tokens that one sequence drafts, step by step. script: values of the draft tokens, how many are accepted."""
    seen = []
    for row, accepted in script:
        seen += drafted(rule, [row])
        verify(rule, [row], seen[-1:], [accepted])
    return seen
