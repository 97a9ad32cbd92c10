"""Straggler caps: a step drafts max k times and everyone waits for the longest, so a cap maps each k to min(k, c).

A cap is asked for c with the batch and its lengths, of which at least one is above 0; sequences with k = 0 delay nobody
and do not count. Those that go by the lengths alone are functions, made without the engine. One that needs more is a
subclass of LearningCap: it is made with the context that policies get, and learns as they do. Sources: DSDE (arXiv
2509.01083) for the mean, the others are our own [O].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from traces.errors import InputError
from traces.registry import Registry

Cap = Callable[[DecodeBatch, Ints], int] | None
"""(batch, lengths int64[B]) -> c."""

caps: Registry[Callable[..., Cap]] = Registry("cap")


class LearningCap:
    """A cap that sees what policies see: who joins, and what verification says. Options as for policies."""

    def __call__(self, batch: DecodeBatch, lengths: Ints) -> int:
        raise NotImplementedError

    def begin(self, slots: Ints) -> None:
        """Sequences took these slots: forget what was known of their predecessors."""

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        """After verification, before the policy learns from it."""


def capped(batch: DecodeBatch, lengths: Ints, cap: Cap) -> Ints:
    """min(k, c) over the batch, int64[B]."""
    if cap is None or not lengths.any():
        return lengths
    return np.minimum(lengths, cap(batch, lengths))


def _by_lengths(rule: Callable[[Ints], int]) -> Cap:
    """A cap from the lengths of the sequences that draft, int64[m], m >= 1."""
    return lambda batch, lengths: rule(lengths[lengths > 0])


@caps.register("none")
def none() -> Cap:
    """No cap."""
    return None


@caps.register("mean")
def mean() -> Cap:
    """The mean of the batch, rounded up: the c that minimises the mean squared difference (DSDE) [C]."""
    return _by_lengths(lambda lengths: -(-int(lengths.sum()) // len(lengths)))


@caps.register("median")
def median() -> Cap:
    """The median of the batch, rounded up [O]."""
    return _by_lengths(lambda lengths: math.ceil(np.median(lengths)))


@caps.register("min")
def minimum() -> Cap:
    """The shortest draft of the batch: nobody ever waits [O]."""
    return _by_lengths(lambda lengths: int(lengths.min()))


@caps.register("quantile")
def quantile(q: float = 0.75) -> Cap:
    """The q-quantile of the batch, rounded up; q in [0, 1], .75 unless given [O]."""
    if not 0 <= q <= 1:
        raise InputError(f"cap quantile: q is {q}, expected 0 to 1")
    return _by_lengths(lambda lengths: math.ceil(np.quantile(lengths, q)))


@caps.register("fixed")
def fixed(c: int = 4) -> Cap:
    """A constant c >= 0, 4 unless given [O]."""
    if c < 0:
        raise InputError(f"cap fixed: c is {c}, expected 0 or more")
    return lambda batch, lengths: c
