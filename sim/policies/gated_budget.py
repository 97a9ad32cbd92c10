"""Gated budget (inference-lab): ragged depths below the gated-aggregate depth.

Start everyone at the depth of `gated-aggregate`, then take away the least likely slots, which are the deepest of their
sequences, and keep the lengths with the most expected tokens per second:

    max over budgets n of (B + sum of the n largest chains) / T(B, lengths of n)

A draft pass whose last sequence leaves costs nothing. Hooks: lengths, observe; lossless. Rule [C]; the original goes on
while the rate rises, ours looks at budgets down to none, since real costs have plateaus on which one slot less saves
nothing [O].
"""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.policies.base import policies
from sim.policies.gated_aggregate import GatedAggregate
from sim.policies.survival import admission


@policies.register("gated-budget")
class GatedBudget(GatedAggregate):
    """Depth per sequence: the batch's best depth, less the slots that cost more than they bring (inference-lab).

    Options as for gated-aggregate, whose depth this starts from.
    """

    name = "gated-budget"
    source = "inference-lab [C]; budgets past plateaus [O]"

    def lengths(self, batch: DecodeBatch) -> Ints:
        chains = self._chains(batch)
        gate = self._gate(batch, chains)
        lengths = np.minimum(gate, batch.remaining - 1)
        if gate == 0 or self.depth == 0:  # nothing to take away, or a probe
            return lengths
        admitted, accepted = admission(chains[:, :gate], lengths)
        best: Ints = admitted[np.argmax((len(batch) + accepted) / self._seconds(batch, admitted))]
        return best
