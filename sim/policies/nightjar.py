"""Nightjar (arXiv 2512.22420): a bandit that learns one k for each batch size, and counts what resuming costs.

Each batch size B is a context of its own, the arms are k = 0..k_max. An arm is kept for a bin of steps. At the start of
bin number b of a block

    with probability 1 / b     any arm
    else                       argmin_k  seconds per token(B, k) + [no draft in the last step and k > 0] C / k

Block j = 1, 2, ... has 2^(j-1) bins and numbers them from 1, so that what is known is tried anew, ever more rarely.
Means do not fade: k comes back from 0 once an explored arm's new steps outweigh its old ones; there is no bound.

Hooks: lengths, observe; lossless. Objective, contexts, 1 / b and 2^(j-1) [P]. Ours [O]: bins of block j last 2^(j-1)
steps (then exploration costs of the order of sqrt(T) log T, the paper's bound); seconds per token are total seconds /
total tokens, without prefill, which is not the arm's doing; C, a table of measurements in the paper, is what the cost
model charges for letting the draft catch up, and is taken off the step that pays it. Not modelled: handing the
draft model's memory to the KV cache while speculation is off.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from traces.errors import InputError


@policies.register("nightjar")
class Nightjar(LengthPolicy):
    """A bandit over k for each batch size, with the cost of resuming speculation (arXiv 2512.22420).

    k  longest draft
    """

    name = "nightjar"
    source = "arXiv 2512.22420 [P]; bins, switching cost from the cost model [O]"

    def __init__(self, context: PolicyContext, k: int = 5) -> None:
        if k < 0:
            raise InputError(f"policy nightjar: k is {k}, expected 0 or more")
        self.max_length = min(k, context.max_draft_tokens)
        sizes = context.num_slots + 1
        self.seconds = np.zeros((sizes, self.max_length + 1))
        self.tokens = np.zeros((sizes, self.max_length + 1))
        self.block = np.zeros(sizes, np.int64)  # j, from 1
        self.bin = np.zeros(sizes, np.int64)  # b, from 1
        self.left = np.zeros(sizes, np.int64)  # steps of the present bin
        self.arm = np.zeros(sizes, np.int64)
        self.last = 0  # k of the last step
        self.switch_s = 0.0  # what the step under way pays for resuming
        self._draws = np.random.Generator(np.random.PCG64(context.seed))
        self._step_seconds = context.step_seconds
        self._arms = np.arange(1, self.max_length + 1)

    def lengths(self, batch: DecodeBatch) -> Ints:
        size = len(batch)
        self.switch_s = self._switch_seconds(batch) if self.last == 0 and self.max_length else 0.0
        if self.left[size] == 0:
            self._next_bin(size)
            self.arm[size] = self._choose(size)
        self.left[size] -= 1
        self.last = int(self.arm[size])
        return np.full(size, self.last, np.int64)

    def _next_bin(self, size: int) -> None:
        if self.block[size] == 0 or self.bin[size] == 2 ** (self.block[size] - 1):
            self.block[size] += 1
            self.bin[size] = 0
        self.bin[size] += 1
        self.left[size] = 2 ** (self.block[size] - 1)

    def _choose(self, size: int) -> int:
        known = self.tokens[size] > 0
        if not known.any() or self._draws.random() * self.bin[size] < 1:
            return int(self._draws.integers(self.max_length + 1))
        loss = np.full(self.max_length + 1, np.inf)
        loss[known] = self.seconds[size, known] / self.tokens[size, known]
        loss[1:] += self.switch_s / self._arms
        return int(np.argmin(loss))

    def _switch_seconds(self, batch: DecodeBatch) -> float:
        """Seconds that the first draft costs more because the draft has fallen behind."""
        one = np.ones(len(batch), np.int64)
        caught_up = replace(batch, draft_tokens=batch.known_tokens - 1)
        return max(self._step_seconds(batch, one) - self._step_seconds(caught_up, one), 0.0)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        time = outcome.time
        seconds = time.draft_s + time.verify_s + time.host_s
        if self.last > 0:  # a prediction: a measured step is not thought to have cost nothing
            seconds -= min(self.switch_s, seconds / 2)
        self.seconds[len(batch), self.last] += seconds
        self.tokens[len(batch), self.last] += float(outcome.emitted.sum())
