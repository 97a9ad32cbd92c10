"""The confidence stop of transformers' assisted generation: stop when the draft is unsure of its own token.

    stop after a token x if q(x) < threshold                                          start 0.4
    after each verification: threshold = argmin FPR + 3 FNR of "q(x) >= threshold" as a guess that x is accepted

Hooks: lengths, stop, observe; lossless. The token that stops is kept; the pairs (q, accepted) run up to the first
rejection and pile up for ever; the re-fit starts with six pairs of both kinds, ties go to the highest threshold, and
candidates are the values of q seen [C]. DISCO (arXiv 2405.04304) is its ancestor [A].

One pool of pairs per engine: transformers serves one text at a time [O]. Pairs are counted in cells of q 0.0001 wide,
the lowest q of a cell being its candidate, so that a long run costs what a short one does; with four digits of q that
is the original's choice, beyond them the nearest candidate below [O]. Costs are compared as whole numbers: ties are
exact here, where the original's depend on rounding.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask, Outcome, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.survival import verdicts
from traces.errors import InputError

CELLS = 10_000
LEAST_PAIRS = 5
"""More than so many pairs are needed for a re-fit [C]."""
MISS_COST = 3
"""What it costs to stop before a token that would be accepted, a needless draft token costing 1 [C]."""


@policies.register("hf-confidence")
class HFConfidence(LengthPolicy):
    """Stop after a token of draft probability below a threshold that is re-fitted to the verdicts (transformers).

    threshold   the first one
    k           longest draft
    refit       on: as where scikit-learn is installed; off: the threshold stays
    """

    name = "hf-confidence"
    source = "transformers 5.24 [C]; DISCO arXiv 2405.04304 [A]; one pool per engine [O]"

    def __init__(
        self, context: PolicyContext, threshold: float = 0.4, k: int = 20, refit: Literal["on", "off"] = "on"
    ) -> None:
        if k < 0 or not 0 <= threshold <= 1:
            raise InputError(
                f"policy hf-confidence: expected k >= 0 and threshold of 0 to 1, got k={k}, threshold={threshold}"
            )
        self.max_length, self.threshold, self.refit = k, threshold, refit == "on"
        self.pairs = np.zeros((2, CELLS + 1), np.int64)  # rejected and accepted tokens, by q from high to low
        self.lowest = np.full(CELLS + 1, np.inf)  # q of each cell

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.max_length, np.int64)

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        return np.asarray(signals.draft_prob[:, depth - 1] < self.threshold)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.verified.max())
        if not self.refit or depth == 0:
            return
        judged, accepted = verdicts(outcome, depth)
        q = np.clip(np.nan_to_num(outcome.signals.draft_prob[:, :depth][judged].astype(np.float64)), 0.0, 1.0)
        cell = CELLS - np.rint(q * CELLS).astype(np.int64)
        kind = accepted[judged]
        for counts, cells in zip(self.pairs, (cell[~kind], cell[kind]), strict=True):
            counts += np.bincount(cells, minlength=CELLS + 1)
        np.minimum.at(self.lowest, cell, q)
        rejected, taken = self.pairs.sum(axis=1).tolist()
        if rejected + taken > LEAST_PAIRS and rejected and taken:
            # FPR + 3 FNR, times both counts, less a constant: it moves at cells that hold a pair, so the first is one
            cost = np.cumsum(taken * self.pairs[0] - MISS_COST * rejected * self.pairs[1])
            self.threshold = float(self.lowest[np.argmin(cost)])
