"""The running sequences: one array per quantity, indexed by slot, which a sequence keeps until it leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class DecodeBatch:
    """What a policy and an executor see of the sequences that decode in a step; one entry per sequence, oldest first.

    slot            index of the sequence's state, stable while it runs
    request         row of the workload
    known_tokens    prompt + emitted: all of them but the newest are in the target's KV cache
    draft_tokens    how many of them are in the draft's KV cache
    emitted         output tokens so far
    remaining       output tokens still to come, at least 1
    temperature     sampling temperature; 0 is greedy
    num_running     sequences that hold a slot, prefilling ones included
    num_waiting     requests queued
    """

    slot: Ints
    request: Ints
    known_tokens: Ints
    draft_tokens: Ints
    emitted: Ints
    remaining: Ints
    temperature: float | Floats
    num_running: int
    num_waiting: int
    _sum_known: int | None = None

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def sum_known_tokens(self) -> int:
        """Known tokens of all sequences, added up once per step."""
        if self._sum_known is None:
            self._sum_known = int(self.known_tokens.sum())
        return self._sum_known

    def keep(self, rows: NDArray[np.bool_]) -> DecodeBatch:
        """The sequences where `rows` is true."""
        temperature = self.temperature[rows] if isinstance(self.temperature, np.ndarray) else self.temperature
        return DecodeBatch(
            self.slot[rows],
            self.request[rows],
            self.known_tokens[rows],
            self.draft_tokens[rows],
            self.emitted[rows],
            self.remaining[rows],
            temperature,
            self.num_running,
            self.num_waiting,
        )


class Batch:
    """Slots of one engine. `order` lists the running ones, oldest first; `prefilling` those that do not decode yet."""

    def __init__(self, capacity: int, temperature: float) -> None:
        self.capacity = capacity
        self.temperature = temperature
        self.request = np.full(capacity, -1, np.int64)
        self.known_tokens = np.zeros(capacity, np.int64)
        self.computed_tokens = np.zeros(capacity, np.int64)
        self.draft_tokens = np.zeros(capacity, np.int64)
        self.emitted = np.zeros(capacity, np.int64)
        self.output_limit = np.zeros(capacity, np.int64)
        self.blocks = np.zeros(capacity, np.int64)
        self.order: list[int] = []
        self.prefilling: list[int] = []
        self._free_slots = list(range(capacity - 1, -1, -1))
        self._decoding: Ints | None = None

    def __len__(self) -> int:
        return len(self.order)

    @property
    def decoding(self) -> Ints:
        """Slots that decode, oldest first."""
        if self._decoding is None:
            prefilling = set(self.prefilling)
            self._decoding = np.array([slot for slot in self.order if slot not in prefilling], np.int64)
        return self._decoding

    def admit(self, request: int, known_tokens: int, computed_tokens: int, emitted: int, output_limit: int) -> int:
        """Give the request a slot; it prefills from `computed_tokens` on. Returns the slot."""
        slot = self._free_slots.pop()
        self.request[slot] = request
        self.known_tokens[slot] = known_tokens
        self.computed_tokens[slot] = self.draft_tokens[slot] = computed_tokens
        self.emitted[slot] = emitted
        self.output_limit[slot] = output_limit
        self.blocks[slot] = 0
        self.order.append(slot)
        self.prefilling.append(slot)
        return slot

    def start_decoding(self, slot: int) -> None:
        self.prefilling.remove(slot)
        self._decoding = None

    def remove(self, slot: int) -> None:
        if slot in self.prefilling:
            self.prefilling.remove(slot)
        self.order.remove(slot)
        self._free_slots.append(slot)
        self.request[slot] = -1
        self._decoding = None

    def view(self, slots: Ints, num_waiting: int) -> DecodeBatch:
        emitted = self.emitted[slots]
        return DecodeBatch(
            slots,
            self.request[slots],
            self.known_tokens[slots],
            self.draft_tokens[slots],
            emitted,
            self.output_limit[slots] - emitted,
            self.temperature,
            len(self.order),
            num_waiting,
        )
