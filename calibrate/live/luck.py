"""Random numbers of sampled decoding that belong to (request, step), whatever batch a request finds itself in.

Counter-based: number c of request r under seed s is a hash of (s, r, c), with the finalizer of SplitMix64 (Steele et
al. 2014). No number is used twice, so that what a policy saw of a draft that was thrown away tells it nothing of the
draws to come: lossless sampling stays lossless whatever the policy does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import Floats, Ints

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Luck:
    """Uniform numbers in [0, 1) for n requests, `width` of them a step."""

    def __init__(self, seed: int, num_requests: int, width: int) -> None:
        self.width = width
        self._steps = np.zeros(num_requests, np.uint64)
        key = np.arange(num_requests, dtype=np.uint64) * _GOLDEN + _mixed(np.array([seed], np.uint64))
        self._key = _mixed(key)

    def draw(self, requests: Ints) -> Floats:
        """The numbers of the next step of each request, all different: float64[B, width]."""
        columns = np.arange(1, self.width + 1, dtype=np.uint64)
        counter: Words = self._steps[requests][:, None] * np.uint64(self.width) + columns
        self._steps[requests] += np.uint64(1)
        words = _mixed(self._key[requests][:, None] + counter * _GOLDEN)
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(words: Words) -> Words:
    """Modulo 2^64, which numpy does to arrays without a word."""
    words = (words ^ (words >> np.uint64(30))) * _FIRST
    words = (words ^ (words >> np.uint64(27))) * _SECOND
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed
