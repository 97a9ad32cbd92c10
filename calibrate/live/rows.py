"""What one pass of the target computes: a few new tokens of each of many sequences, laid end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sim.control.batch import Ints

ALIKE = 2
"""Rows are computed side by side while the longest has at most so many times the tokens of the shortest."""


@dataclass(frozen=True)
class Rows:
    """New tokens of R sequences: row r has counts[r] of them, from position context[r] of slot slots[r] on.

    tokens      int64[N], N the sum of counts: row after row
    slots, context, counts  int64[R]; slots are all different
    together    lengths of runs of rows whose attention is computed side by side, padded to their longest
    """

    tokens: torch.Tensor
    slots: Ints
    context: Ints
    counts: Ints
    together: tuple[int, ...]

    @property
    def first(self) -> Ints:
        """Where each row begins among the N tokens, int64[R]."""
        return np.cumsum(self.counts) - self.counts

    @property
    def positions(self) -> NDArray[np.int64]:
        """Of each token in its sequence, int64[N]."""
        return np.arange(int(self.counts.sum())) + np.repeat(self.context - self.first, self.counts)

    @property
    def slot_of_token(self) -> NDArray[np.int64]:
        return np.repeat(self.slots, self.counts)


def alike(counts: Ints) -> tuple[Ints, tuple[int, ...]]:
    """An order of rows in which those of similar length stand together, and the lengths of these runs."""
    order = np.argsort(-counts, kind="stable")
    runs: list[int] = []
    longest = 0
    for count in counts[order].tolist():
        if not runs or count * ALIKE < longest:
            runs.append(0)
            longest = count
        runs[-1] += 1
    return order, tuple(runs)


def padded_index(first: Ints, counts: Ints, width: int) -> NDArray[np.int64]:
    """Row-wise places of ragged rows in a rectangle, int64[R, width]; beyond a row's end its last token again."""
    return first[:, None] + np.minimum(np.arange(width), counts[:, None] - 1)


def ragged_index(counts: Ints, width: int) -> NDArray[np.int64]:
    """Places of the real entries in a flattened rectangle [R, width], row after row: int64[N]."""
    rows = np.arange(len(counts)) * width
    first = np.cumsum(counts) - counts
    places: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(rows - first, counts)
    return places
