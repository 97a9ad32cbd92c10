"""How the engine runs its passes, and what it charges beyond them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sim.replay.cost import ForwardCost
from traces.errors import InputError

MOST_SWITCH_COST_MS = 1e6
MOST_TOKENS = 2**31 - 1
"""Of a graph size."""


@dataclass(frozen=True)
class Execution:
    """Options of the simulated engine. Raises InputError for one that makes no sense.

    draft           padded: every decoding sequence goes through all max k draft passes, as engines do; compact: a
                    sequence leaves the draft batch after its own k
    verify          ragged: sum(k_i + 1) tokens; padded: everyone verifies max k + 1
    capture_sizes   CUDA-graph sizes in tokens, ascending: a pass pays for the next one; empty: the profile's own
    switch_cost_ms  charged when the verification's width, the largest k that is verified, is not that of the last step
    overlap         the draft goes on while the target verifies, on devices of its own (PEARL, arXiv 2408.11850); see
                    sim.replay.ahead
    """

    draft: Literal["padded", "compact"] = "padded"
    verify: Literal["ragged", "padded"] = "ragged"
    capture_sizes: tuple[int, ...] = ()
    switch_cost_ms: float = 0.0
    overlap: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.switch_cost_ms <= MOST_SWITCH_COST_MS:
            raise InputError(f"--switch-cost-ms is {self.switch_cost_ms}, expected 0 to {MOST_SWITCH_COST_MS:g}")

    def costs(self, cost: ForwardCost) -> ForwardCost:
        """A model's cost with the graph sizes of these options."""
        return replace(cost, capture_sizes=self.capture_sizes) if self.capture_sizes else cost


def capture_sizes(words: Sequence[str]) -> tuple[int, ...]:
    """`["1", "2", "4,8"]` -> (1, 2, 4, 8), sorted, without repeats. Raises InputError."""
    sizes = [size for word in words for size in word.split(",") if size]
    wrong = [size for size in sizes if not (size.isascii() and size.isdecimal() and 0 < int(size) <= MOST_TOKENS)]
    if wrong:
        raise InputError(
            f"--cudagraph-capture-sizes: {wrong[0]!r} is no whole number from 1 to {MOST_TOKENS}, as in 1 2 4 8"
        )
    return tuple(sorted({int(size) for size in sizes}))
