"""SpecDec++ (arXiv 2405.19715): stop when the chance that some draft token is rejected passes a threshold.

    stop after token d if 1 - prod_{j < d} p_hat_j > h                     h 0.7; at least 2 tokens, at most 20
    p_hat_j = sigmoid(a + b logit(beta_j) + noise)                         beta_j: chance that token j is accepted

Hooks: lengths, stop; lossless. The original's head scores the token before the newest, so that the stop comes one token
late [C]. Its trained head is not public for every pair: ours is the recorded chance of acceptance, calibrated by a and
b and disturbed by normal noise on the logit; without noise an oracle [O]. Only a replay knows that chance. Behind a
rejection it is that of the recorded text, as if it went on there. The noise belongs to the place in the text. Greedy
windows hold chances of 0 and 1, which count as 0.0001 and 0.9999, logit -+9.2: b well below 1 makes a head unsure.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Mask, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import chance, logit
from traces.errors import InputError

NOISES = 65_536
REQUEST_STRIDE = 7_919
"""Places between the noises of two requests: a prime, so that none of a run's share theirs for long [O]."""


@policies.register("specdec++")
class SpecDecPP(LengthPolicy):
    """Stop once the drafts so far are likely to hold a rejected token, by a noisy oracle's word (arXiv 2405.19715).

    h                   largest chance of a rejection to go on with
    a, b, noise         the head: offset, slope and standard deviation on the logit of the recorded chance
    min_spec, max_spec  no stop before, none after
    """

    name = "specdec++"
    source = "arXiv 2405.19715 [C]; head from recorded acceptance [O]"

    def __init__(
        self,
        context: PolicyContext,
        h: float = 0.7,
        a: float = 0.0,
        b: float = 1.0,
        noise: float = 0.0,
        min_spec: int = 2,
        max_spec: int = 20,
    ) -> None:
        if not (0 <= h <= 1 and 0 <= noise < float("inf") and 0 <= min_spec <= max_spec):
            raise InputError(
                f"policy specdec++: expected h of 0 to 1, noise >= 0 and 0 <= min_spec <= max_spec, got h={h}, "
                f"noise={noise}, min_spec={min_spec}, max_spec={max_spec}"
            )
        if not np.isfinite([a, b]).all():
            raise InputError(f"policy specdec++: expected finite a and b, got a={a}, b={b}")
        self.h, self.a, self.b, self.min_spec, self.max_length = h, a, b, min_spec, max_spec
        draws = np.random.Generator(np.random.PCG64(context.seed)).normal(size=NOISES)
        self.noise = noise * draws if noise else None
        self._chances = context.acceptance_chances
        self._survival: Floats = np.ones((0, 0))

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        if depth == 1:
            self._survival = self._survivals(batch)
        if depth < max(self.min_spec, 2):  # the first score comes with the second token
            return np.zeros(len(batch), np.bool_)
        return np.asarray(1.0 - self._survival[:, depth - 2] > self.h)

    def _survivals(self, batch: DecodeBatch) -> Floats:
        """By the head, the chance that the first d tokens are all accepted, float[B, K]."""
        logits = self.a + self.b * logit(self._chances(batch)[:, : self.max_length].astype(np.float64))
        if self.noise is not None:
            place = (batch.request * REQUEST_STRIDE + batch.emitted)[:, None] + np.arange(logits.shape[1])
            logits = logits + self.noise[place % NOISES]
        return np.asarray(np.cumprod(chance(logits), axis=1))
