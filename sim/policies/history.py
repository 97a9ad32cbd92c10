"""The last n values of each sequence, newest last: the memory of policies that look back over tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import Floats, Ints


class History:
    """`values[slot]` holds up to `length` values, right-aligned; `count[slot]` says how many are real."""

    def __init__(self, num_slots: int, length: int) -> None:
        self.length = length
        self.values = np.zeros((num_slots, length))
        self.count = np.zeros(num_slots, np.int64)

    def clear(self, slots: Ints) -> None:
        self.count[slots] = 0

    def append(self, slots: Ints, new: Floats, num_new: Ints) -> Floats:
        """Append the first num_new[i] of new[i] to the history of slots[i]; returns their values, float[B, length].

        new: float[B, D], num_new: int64[B].
        """
        width = self.length + new.shape[1]
        joined = np.concatenate([self.values[slots], new], axis=1)
        first = np.arange(0, len(slots) * width, width) + num_new
        values: Floats = joined.take(first[:, None] + np.arange(self.length))
        self.values[slots] = values
        self.count[slots] = np.minimum(self.count[slots] + num_new, self.length)
        return values


class DecayedVariance:
    """Variances over the newest values with weight decay^age, age 0 for the newest, one for each of several windows:

    mean_w = sum(w x) / sum(w);  Var_w = sum(w (x - mean_w)^2) / sum(w) = sum(w x^2) / sum(w) - mean_w^2.
    """

    def __init__(self, length: int, decay: float, *windows: NDArray[np.int64]) -> None:
        """windows: for each count 0..length of real values, how many of the newest are looked at; int64[length + 1]."""
        age = np.arange(length - 1, -1, -1)
        weight = np.stack([np.where(age < window[:, None], decay**age, 0.0) for window in windows], axis=2)
        total = weight.sum(axis=1, keepdims=True)
        self._weight = weight / np.where(total > 0, total, 1.0)  # [length + 1, length, windows]

    def __call__(self, values: Floats, count: Ints) -> Floats:
        """values: float[B, length], right-aligned; count: int64[B]. Returns float[windows, B]; 0 if there are none."""
        if len(count) and count.min() == values.shape[1]:  # all full, the usual case: the same weights for all
            weight = self._weight[-1]
            mean, square = values @ weight, (values * values) @ weight
        else:
            weight = self._weight[count]
            mean = np.einsum("ij,ijk->ik", values, weight)
            square = np.einsum("ij,ijk->ik", values * values, weight)
        return np.asarray(np.maximum(square - mean * mean, 0.0)).T
