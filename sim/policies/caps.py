"""Straggler caps: a step drafts max k times and everyone waits for the longest, so a cap maps each k to min(k, c).

A cap is a function of the drafting sequences' lengths (int64[m], m >= 1, each > 0) to c; it is never asked about an
empty batch. Sequences with k = 0 delay nobody and do not count. Sources: DSDE (arXiv 2509.01083) for the mean, the
others are our own [O].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sim.control.batch import Ints
from traces.errors import InputError
from traces.registry import Registry

Cap = Callable[[Ints], int] | None
caps: Registry[Callable[..., Cap]] = Registry("cap")


def capped(lengths: Ints, cap: Cap) -> Ints:
    """min(k, c) over the batch, int64[B]."""
    if cap is None:
        return lengths
    drafting = lengths[lengths > 0]
    return np.minimum(lengths, cap(drafting)) if len(drafting) else lengths


@caps.register("none")
def none() -> Cap:
    """No cap."""
    return None


@caps.register("mean")
def mean() -> Cap:
    """The mean of the batch, rounded up: the c that minimises the mean squared difference (DSDE) [C]."""
    return lambda lengths: -(-int(lengths.sum()) // len(lengths))


@caps.register("median")
def median() -> Cap:
    """The median of the batch, rounded up [O]."""
    return lambda lengths: math.ceil(np.median(lengths))


@caps.register("min")
def minimum() -> Cap:
    """The shortest draft of the batch: nobody ever waits [O]."""
    return lambda lengths: int(lengths.min())


@caps.register("quantile")
def quantile(q: float = 0.75) -> Cap:
    """The q-quantile of the batch, rounded up; q in [0, 1] [O]."""
    if not 0 <= q <= 1:
        raise InputError(f"cap quantile: q is {q}, expected 0 to 1")
    return lambda lengths: math.ceil(np.quantile(lengths, q))


@caps.register("fixed")
def fixed(c: int = 4) -> Cap:
    """A constant c >= 0 [O]."""
    if c < 0:
        raise InputError(f"cap fixed: c is {c}, expected 0 or more")
    return lambda lengths: c
