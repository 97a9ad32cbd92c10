"""Which passes are measured: the ends and the middle of every axis first, then finer as the time allows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

VERIFY_QUERIES = (1, 2, 3, 4, 5, 7, 9, 13, 17)
"""New tokens of a sequence in a target's pass: 1 is plain decoding, 1 + k verifies k."""
DRAFT_QUERIES = (1, 2, 3, 5)
"""A draft decodes one token, or two after a full acceptance; more where it catches up."""
SMALLEST_CONTEXT, SMALLEST_CHUNK = 16, 32
PREFILL_SEQS = (1, 2, 4)


@dataclass(frozen=True, order=True)
class Point:
    """One kind of pass: `num_seqs` sequences, each with `query_tokens` new tokens on `context_tokens` cached ones.

    model   "target" or "draft"
    phase   "decode" (one new token), "verify" (a few) or "prefill" (a chunk of prompt; logits of its last token only)
    """

    model: str
    phase: str
    num_seqs: int
    query_tokens: int
    context_tokens: int

    @property
    def new_tokens(self) -> int:
        """Of all sequences."""
        return self.num_seqs * self.query_tokens

    @property
    def kv_tokens(self) -> int:
        """Read by all sequences."""
        return self.num_seqs * (self.context_tokens + self.query_tokens)


@dataclass(frozen=True)
class Extent:
    """How far the grid reaches, in sequences and tokens; a chunk of prefill has at most `max_prefill_tokens`."""

    max_num_seqs: int
    max_model_len: int
    max_prefill_tokens: int


def candidates(model: str, queries: Sequence[int], extent: Extent) -> list[tuple[int, Point]]:
    """All points within the extent with their level: 0 for ends and middles, then ever finer."""
    seqs = _levels(_powers(1, extent.max_num_seqs))
    query = _levels([q for q in queries if q < extent.max_model_len // 2])
    contexts = _levels(_powers(SMALLEST_CONTEXT, extent.max_model_len - max(query)))
    found = [
        (sum(levels), Point(model, "decode" if q == 1 else "verify", s, q, c))
        for (s, q, c), levels in _product(seqs, query, contexts)
    ]
    longest = min(extent.max_prefill_tokens, extent.max_model_len)
    chunks = _levels(_powers(min(SMALLEST_CHUNK, longest), longest))
    several = {s: min(i, 1) for i, s in enumerate(PREFILL_SEQS) if s <= extent.max_num_seqs}
    before = _levels([0, *_powers(SMALLEST_CHUNK * 2, max(extent.max_model_len - min(chunks), 1))])
    found += [
        (sum(levels), Point(model, "prefill", s, q, c))
        for (s, q, c), levels in _product(several, chunks, before)
        if q + c <= extent.max_model_len and s * q <= extent.max_prefill_tokens
    ]
    return found


def ordered(found: Sequence[tuple[int, Point]], seed: int) -> list[Point]:
    """Coarse levels first, within one by seed: wherever the time ends, what was measured spans the extent."""
    shuffled = [found[i] for i in np.random.default_rng(seed).permutation(len(found))]
    return [point for _, point in sorted(shuffled, key=lambda entry: entry[0])]


def _powers(first: int, last: int) -> list[int]:
    """first, 2 * first, ... and last, rising."""
    if last <= first:
        return [last]
    return sorted({*(first * 2**i for i in range((last // first).bit_length())), last})


def _levels(values: Sequence[int]) -> dict[int, int]:
    """Each value with its level: 0 for the ends and the middle, 1 for the quarters, ..."""
    last = len(values) - 1
    levels = {values[0]: 0, values[last]: 0}
    stretches, level = [(0, last)], 0
    while stretches:
        finer = []
        for low, high in stretches:
            middle = (low + high) // 2
            if low < middle < high:
                levels[values[middle]] = level
                finer += [(low, middle), (middle, high)]
        stretches, level = finer, level + 1
    return levels


def _product(*axes: dict[int, int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All combinations of values with their levels."""
    return [
        (tuple(value for value, _ in entry), tuple(level for _, level in entry))
        for entry in itertools.product(*(axis.items() for axis in axes))
    ]
