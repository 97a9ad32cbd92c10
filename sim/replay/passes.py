"""The sums over a batch that the cost of a pass depends on, and the count of the passes that were made."""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.replay.cost import ForwardCost


class Meter:
    """Looks up what passes cost and counts them. `outside`: those beyond what was measured."""

    def __init__(self) -> None:
        self.passes = 0
        self.outside = 0

    def seconds(self, cost: ForwardCost, new: int, kv: int, pairs: int, seqs: int) -> float:
        """One pass."""
        self.passes += 1
        self.outside += cost.outside(new, kv, seqs)
        return cost.seconds(new, kv, pairs, seqs)

    def total(self, cost: ForwardCost, new: Floats, kv: Floats, pairs: Floats, seqs: Floats) -> float:
        """Passes one after the other, an entry each; those without new tokens are not made."""
        made = new > 0
        largest = cost.measured
        beyond = (new > largest.new_tokens) | (kv > largest.kv_tokens) | (seqs > largest.num_seqs)
        self.passes += int(made.sum())
        self.outside += int((made & beyond).sum())
        return float(cost.seconds(new, kv, pairs, seqs).sum())


def triangle(tokens: Ints, total: int) -> int:
    """Sum of q (q - 1) / 2, `total` being the sum of q: what q new tokens do not see of q * context pairs."""
    return (int(tokens @ tokens) - total) // 2


def decode_pass(batch: DecodeBatch, verified: Ints) -> tuple[int, int, int, int]:
    """New tokens, KV tokens, query-key pairs and sequences of a target pass over 1 + verified tokens each."""
    known, query = batch.known_tokens, verified + 1
    drafts = int(verified.sum())
    # a sequence has known - 1 tokens in the cache; its query number i sees known - 1 + i of them
    new = len(query) + drafts
    pairs = int(query @ known) + triangle(query, new)
    return new, batch.sum_known_tokens + drafts, pairs, len(query)


def prefill_pass(context: list[int], tokens: list[int]) -> tuple[int, int, int]:
    """New tokens, KV tokens and query-key pairs of prefill chunks behind `context` tokens each."""
    new = sum(tokens)
    pairs = sum(done * chunk + chunk * (chunk + 1) // 2 for done, chunk in zip(context, tokens, strict=True))
    return new, sum(context) + new, pairs


def chain(first: Ints, start: Ints, count: Ints, padded: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """New tokens, KV tokens, pairs, sequences of passes that add a token to drafts each: float64[N, P].

    first  int64[B]: new tokens of each sequence in its first pass; in later ones it is 1
    start  int64[B] or [N, B]: tokens that the first pass reads, its new ones included; each later pass reads one more
    count  int64[N, B]: passes of each sequence in each of N alternatives; P is the largest
    padded whether all sequences with a pass go through as many as the longest
    """
    if padded:
        count = np.where(count > 0, count.max(axis=1, initial=0)[:, None], 0)
    longest = int(count.max(initial=0))
    cell = (count + (longest + 1) * np.arange(len(count))[:, None]).ravel()

    def in_pass(values: Ints | None) -> Floats:
        """Per alternative and pass, the values of the sequences that go through it; None: how many those are."""
        weights = None if values is None else np.broadcast_to(values, count.shape).ravel()
        ending = np.bincount(cell, weights, len(count) * (longest + 1)).reshape(len(count), longest + 1)
        return np.asarray(ending[:, :0:-1].cumsum(axis=1)[:, ::-1], np.float64)

    seqs = in_pass(None)
    kv = in_pass(start) + seqs * np.arange(longest)
    new, pairs = seqs.copy(), kv.copy()
    if longest:
        drafting = count > 0
        new[:, 0] = drafting @ first
        pairs[:, 0] = (drafting * (first * start - first * (first - 1) // 2)).sum(axis=1)
    return new, kv, pairs, seqs
