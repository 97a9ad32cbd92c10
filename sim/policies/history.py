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

    def append(self, slots: Ints, new: Floats, num_new: Ints) -> None:
        """Append the first num_new[i] of new[i] to the history of slots[i]. new: float[B, D], num_new: int64[B]."""
        width = self.length + new.shape[1]
        joined = np.concatenate([self.values[slots], new], axis=1)
        first = np.arange(len(slots)) * width + num_new
        self.values[slots] = joined.ravel()[first[:, None] + np.arange(self.length)]
        self.count[slots] = np.minimum(self.count[slots] + num_new, self.length)


class DecayedVariance:
    """Variance over the newest `window` values with weight decay^age, age 0 for the newest:

    mean_w = sum(w x) / sum(w);  Var_w = sum(w (x - mean_w)^2) / sum(w).
    """

    def __init__(self, length: int, decay: float, window: NDArray[np.int64]) -> None:
        """window: for each count 0..length of real values, how many of the newest are looked at; int64[length + 1]."""
        age = np.arange(length - 1, -1, -1)
        self._weight = np.where(age < window[:, None], decay**age, 0.0)  # [length + 1, length]
        total = self._weight.sum(axis=1, keepdims=True)
        self._weight /= np.where(total > 0, total, 1.0)

    def __call__(self, values: Floats, count: Ints) -> Floats:
        """values: float[B, length], right-aligned; count: int64[B]. Returns float[B]; 0 for an empty history."""
        if len(count) and count.min() == values.shape[1]:  # all full, the usual case: one weight for all
            weight = self._weight[-1]
            deviation = values - (values @ weight)[:, None]
            deviation *= deviation
            return np.asarray(deviation @ weight)
        weights = self._weight[count]
        deviation = values - np.einsum("ij,ij->i", weights, values)[:, None]
        deviation *= deviation
        return np.einsum("ij,ij->i", weights, deviation)
