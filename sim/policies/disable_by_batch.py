"""Speculation off under load: k while few sequences run, plain decoding otherwise.

vLLM's old speculative_disable_by_batch_size [C]: no draft in a step that starts with `threshold` or more running
sequences, prefilling ones included. Hooks: lengths; lossless. The defaults are ours [O]; vLLM has none.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError


@policies.register("disable-by-batch")
class DisableByBatch(LengthPolicy):
    """k while fewer than `threshold` sequences run, else 0 (vLLM's speculative_disable_by_batch_size)."""

    name = "disable-by-batch"
    source = "vLLM 0.8 [C]; defaults [O]"

    def __init__(self, context: PolicyContext, k: int = 4, threshold: int = 32) -> None:
        if k < 0 or threshold < 1:
            raise InputError(
                f"policy disable-by-batch: expected k >= 0 and threshold >= 1, got k={k}, threshold={threshold}"
            )
        self.max_length = k if threshold > 1 else 0  # with threshold 1 no step drafts
        self.threshold = threshold

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length if batch.num_running < self.threshold else 0, np.int64)
