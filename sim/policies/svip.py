"""SVIP (arXiv 2411.18462): stop drafting after a token at which the draft's entropy is high.

    stop after a token of entropy H if sqrt(0.15 H) > threshold         threshold 0.3: H > 0.6 nats

Hooks: lengths, stop; lossless; no state. The token that stops is kept; entropy is that of the un-tempered draft; at
most 40 tokens [C]. The original computes in bfloat16, so that values at the threshold may differ.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError

WEIGHT = 0.15
"""Of the entropy under the root [C]."""


@policies.register("svip")
class SVIP(LengthPolicy):
    """Stop after a token of high draft entropy: sqrt(0.15 H) > threshold (arXiv 2411.18462). k: the longest draft."""

    name = "svip"
    source = "arXiv 2411.18462 [C]"

    def __init__(self, context: PolicyContext, threshold: float = 0.3, k: int = 40) -> None:
        if k < 0 or not threshold >= 0:
            raise InputError(f"policy svip: expected k >= 0 and threshold >= 0, got k={k}, threshold={threshold}")
        self.max_length, self.threshold = k, threshold

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        entropy = np.maximum(signals.draft_entropy[:, depth - 1], 0.0)
        return np.asarray(np.sqrt(WEIGHT * entropy) > self.threshold)
