"""SGLang's adaptive speculation: one k for the batch, from how many tokens were accepted at such batch sizes [C].

Every range of batch sizes has candidates for k and an exponential mean m of the accepted tokens of a step. After a
warm-up, every few batches, with `lower` and `k` neighbouring candidates:

    down to lower while  m <= (0.5 if lower is 0, else lower - 0.5) + down
    then to the largest candidate <= ceil(ceiling * m), if that is below and ceiling is not 0
    if k has not moved,  up to the next while  m > k - 0.5 + up
    from 0 always to the next, as a probe: without drafts m says nothing; an m below 0 becomes next - 1

m starts at k - 1, and stands still while k is 0. A batch takes the range with the largest start <= its size, rounded up
to a CUDA graph's if `graph_sizes` are given, and the first one if there is none.

Hooks: observe, lengths; lossless. Sequences that drafted nothing though k > 0 (their last token) are left out of m [O].
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.base import LARGEST_OPTION, LengthPolicy, PolicyContext, policies
from sim.policies.json_option import load_json
from traces.errors import InputError

WHAT = "policy sglang-adaptive"
DEFAULT = """{"1": {"candidate_steps": [1, 3, 5, 7]}, "8": {"candidate_steps": [0, 1, 3], "down_hysteresis": 0},
"32": {"candidate_steps": [0, 1], "down_hysteresis": 0}, "64": {"candidate_steps": [0], "down_hysteresis": 0}}"""


@dataclass(slots=True)
class Range:
    """Candidates and state of one range of batch sizes; names of the options as in SGLang's configuration file."""

    candidate_steps: list[int]
    ema_alpha: float = 0.2
    warmup_batches: int = 10
    update_interval: int = 5
    up_hysteresis: float = 0.0
    down_hysteresis: float = -0.25
    ceiling_coeff: float = 0.0
    steps: int = field(default=0, init=False)
    ema: float = field(default=0.0, init=False)
    batches: int = field(default=0, init=False)

    def start(self, steps: int) -> None:
        """Start at `steps`, or at the middle candidate if it is none of them."""
        known = self.candidate_steps
        self.steps = steps if steps in known else known[len(known) // 2]
        self.ema = float(self.steps - 1)

    def update(self, accepted: Ints) -> None:
        """Learn from the accepted tokens of each request of a batch, int64[n]; none at all changes nothing."""
        if not len(accepted):
            return
        self.batches += 1
        if self.steps > 0:
            self.ema = (1 - self.ema_alpha) * self.ema + self.ema_alpha * float(accepted.mean())
        since = self.batches - self.warmup_batches
        if since > 0 and since % self.update_interval == 0:
            self._move()

    def _move(self) -> None:
        known, index = self.candidate_steps, self.candidate_steps.index(self.steps)
        if self.steps == 0:
            if len(known) > 1:
                self.steps = known[1]
                self.ema = float(self.steps - 1) if self.ema < 0 else self.ema
            return
        start = index
        while index > 0 and self.ema <= max(known[index - 1] - 0.5, 0.5) + self.down_hysteresis:
            index -= 1
        if self.ceiling_coeff > 0:
            index = min(index, max(bisect_right(known, math.ceil(self.ceiling_coeff * self.ema)) - 1, 0))
        if index == start:
            while index + 1 < len(known) and self.ema > known[index] - 0.5 + self.up_hysteresis:
                index += 1
        self.steps = known[index]


OPTIONS = [name for name, each in Range.__dataclass_fields__.items() if each.init]


@policies.register("sglang-adaptive")
class SGLangAdaptive(LengthPolicy):
    """One k for the batch from an exponential mean of the accepted tokens, with its own candidates per batch size.

    k            first k of every range that has it as a candidate (speculative_num_steps)
    config       ranges as in SGLang's --speculative-adaptive-config, JSON or a file; default: SGLang's own
    graph_sizes  CUDA graph batch sizes as JSON, e.g. [1,2,4,8]; default: batches are not padded
    """

    name = "sglang-adaptive"
    source = "SGLang 0.5.23 [C]"

    def __init__(
        self, context: PolicyContext, k: int = 3, config: str = DEFAULT, graph_sizes: str | None = None
    ) -> None:
        ranges = parse_config(load_json(config, f"{WHAT}: option config"))
        self.starts, self.ranges = list(ranges), list(ranges.values())
        for each in self.ranges:
            each.start(k)
        self.graph_sizes = _graph_sizes(graph_sizes) if graph_sizes else []
        self.max_length = max(max(each.candidate_steps) for each in self.ranges)

    def range_of(self, batch_size: int) -> Range:
        """The range that a batch of this size belongs to."""
        graph = bisect_left(self.graph_sizes, batch_size)
        padded = self.graph_sizes[graph] if graph < len(self.graph_sizes) else batch_size
        return self.ranges[max(bisect_right(self.starts, padded) - 1, 0)]

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.range_of(len(batch)).steps, np.int64)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        mine = self.range_of(len(batch))
        mine.update(outcome.accepted[outcome.proposed > 0] if mine.steps else outcome.accepted)


def parse_config(config: Any) -> dict[int, Range]:
    """Ranges by the batch size that they start at, ascending. Keys that are no sizes hold for every range."""
    if not isinstance(config, dict):
        raise InputError(f"{WHAT}: the configuration is {config!r}, expected an object with a key per batch size")
    shared = {key: value for key, value in config.items() if not key.isdecimal()}
    sizes = sorted((int(key), key) for key in config if key.isdecimal())
    if not sizes:
        raise InputError(f"{WHAT}: the configuration names no batch size, e.g. {{'1': {{'candidate_steps': [1, 3]}}}}")
    return {size: _range(key, shared, config[key]) for size, key in sizes}


def _range(key: str, shared: dict[str, Any], own: Any) -> Range:
    if not isinstance(own, dict):
        raise InputError(f"{WHAT}: batch size {key}: expected an object, got {own!r}")
    options = {**shared, **own}
    for name, value in options.items():
        if name not in OPTIONS:
            raise InputError(f"{WHAT}: unknown key {name!r}; known: {', '.join(OPTIONS)}")
        if name != "candidate_steps" and not (isinstance(value, (int, float)) and math.isfinite(value)):
            raise InputError(f"{WHAT}: batch size {key}: {name} is {value!r}, expected a number")
    steps = options.get("candidate_steps")
    known = range(LARGEST_OPTION + 1)
    if not isinstance(steps, list) or not steps or any(type(step) is not int or step not in known for step in steps):
        raise InputError(
            f"{WHAT}: batch size {key}: candidate_steps is {steps!r}, expected whole numbers from 0 to {LARGEST_OPTION}"
        )
    made = Range(**{**options, "candidate_steps": sorted(set(steps))})
    if not 0 < made.ema_alpha <= 1 or made.warmup_batches < 0 or made.update_interval < 1:
        raise InputError(
            f"{WHAT}: batch size {key}: expected 0 < ema_alpha <= 1, warmup_batches >= 0, update_interval >= 1"
        )
    return made


def _graph_sizes(text: str) -> list[int]:
    sizes = load_json(text, f"{WHAT}: option graph_sizes")
    if not isinstance(sizes, list) or any(type(size) is not int or size < 1 for size in sizes):
        raise InputError(f"{WHAT}: graph_sizes is {text}, expected batch sizes, e.g. [1,2,4,8]")
    return sorted(sizes)
