"""A constant draft length: what engines do unless told otherwise."""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError


@policies.register("fixed")
class Fixed(LengthPolicy):
    """Constant k (vLLM's num_speculative_tokens)."""

    name = "fixed"
    source = "baseline"

    def __init__(self, context: PolicyContext, k: int = 4) -> None:
        if k < 0:
            raise InputError(f"policy fixed: k is {k}, expected 0 or more")
        self.k = self.max_length = k

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.k, np.int64)
