"""No speculation: plain decoding, the baseline of every comparison."""

from __future__ import annotations

from sim.policies.base import PolicyContext, policies
from sim.policies.fixed import Fixed


@policies.register("none")
class NoSpeculation(Fixed):
    """k = 0, plain decoding; equal to `fixed:k=0` to the last digit."""

    name = "none"
    source = "baseline"

    def __init__(self, context: PolicyContext) -> None:
        super().__init__(context, k=0)
