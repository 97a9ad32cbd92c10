"""The upper bound: a policy that knows which draft tokens will be accepted."""

from __future__ import annotations

from typing import Literal

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.policies.base import LengthPolicy, PolicyContext, policies


@policies.register("oracle")
class Oracle(LengthPolicy):
    """k = the run that will be accepted (no token wasted); `oracle:goodput` also picks the depth that pays best [O]."""

    name = "oracle"
    source = "our own upper bound [O]"

    def __init__(self, context: PolicyContext, form: Literal["exact", "goodput"] = "exact") -> None:
        self.form = form
        self.max_length = context.max_draft_tokens
        self._accepted_runs = context.accepted_runs
        self._step_seconds_many = context.step_seconds_many

    def lengths(self, batch: DecodeBatch) -> Ints:
        runs = np.minimum(self._accepted_runs(batch), batch.remaining - 1)
        return runs if self.form == "exact" else self._best_depth(batch, runs)

    def _best_depth(self, batch: DecodeBatch, runs: Ints) -> Ints:
        """min(run, D) for the one depth D that maximises emitted tokens per second of the cost model; ties: shallow."""
        lengths = np.minimum(runs, np.arange(int(runs.max()) + 1)[:, None])
        rate = (len(batch) + lengths.sum(axis=1)) / self._step_seconds_many(batch, lengths)
        return np.asarray(lengths[np.argmax(rate)])
