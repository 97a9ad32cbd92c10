"""What each sequence was like lately: acceptance, divergence and draft entropy, newest weighted most.

One row per slot. A sequence that has no past looks like the engine's average; the more of its own tokens were seen, the
less of that average is mixed in.
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import Floats, Ints
from sim.control.executor import Outcome
from sim.policies.survival import logit

FADE = 0.85
"""Weight of a token's value after one more token; 0.85 is DSDE's decay (arXiv 2509.01083)."""
OWN = 2.0
"""Tokens of its own after which a sequence counts as much as the average [O]."""
ENGINE_FADE = 0.999
"""The same for the engine's average, per token [O]."""
LARGEST_KLD = 20.0
"""Nats; an infinite or undefined divergence counts as this."""
FLOOR = 0.003
"""Nats that are added to a divergence before its logarithm is taken."""

ACCEPTED, KLD, ENTROPY = range(3)
START = np.array([0.7, np.log(0.3), np.log(0.7)])
"""The average before anything was seen [O]."""


class Recent:
    """Decayed means of three quantities per slot: accepted share, ln KLD, ln draft entropy."""

    def __init__(self, num_slots: int, depth: int) -> None:
        """depth: most tokens of one step."""
        self._state = np.zeros((num_slots, 2, 3))
        self.sums, self.weight = self._state[:, 0], self._state[:, 1]
        self.average = START.copy()
        count = np.arange(depth + 1)
        self._fade = FADE**count
        # the tokens of one step are taken as equally old: together they weigh what a decayed sum of as many weighs
        self._share = (1.0 - self._fade) / (1.0 - FADE) / np.maximum(count, 1)

    def begin(self, slots: Ints) -> None:
        self._state[slots] = 0.0

    def features(self, slots: Ints) -> Floats:
        """logit of the accepted share, ln KLD, ln draft entropy: float[B, 3]."""
        state = self._state[slots]
        means = (state[:, 0] + OWN * self.average) / (state[:, 1] + OWN)
        means[:, ACCEPTED] = logit(means[:, ACCEPTED])
        return np.asarray(means)

    def observe(self, slots: Ints, outcome: Outcome, log_entropy: Floats) -> None:
        """One step: the verdicts, and both signals of what was verified. log_entropy: ln nats, float[B, D]."""
        depth = log_entropy.shape[1]
        verified = outcome.verified
        seen = np.arange(depth) < verified[:, None]
        kld = np.log(np.maximum(np.fmin(outcome.signals.kld[:, :depth], LARGEST_KLD), 0.0) + FLOOR)
        count = np.empty((len(slots), 3), np.int64)
        count[:, ACCEPTED] = np.minimum(outcome.accepted + 1, verified)
        count[:, KLD:] = verified[:, None]
        new = np.empty((len(slots), 2, 3))  # totals of the step, and of how many tokens
        new[:, 0, ACCEPTED] = outcome.accepted
        new[:, 0, KLD] = np.einsum("ij,ij->i", kld, seen)
        new[:, 0, ENTROPY] = np.einsum("ij,ij->i", log_entropy, seen)
        new[:, 1] = count
        fade, share = self._fade[count], self._share[count]
        self._state[slots] = fade[:, None] * self._state[slots] + share[:, None] * new
        total, everyone = new.sum(axis=0)
        keep = ENGINE_FADE**everyone
        self.average = keep * self.average + (1 - keep) * total / np.maximum(everyone, 1)
