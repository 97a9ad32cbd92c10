"""Drafting ahead (PEARL, arXiv 2408.11850, post-verify): the draft goes on while the target verifies.

The draft has devices of its own. In a step each sequence first drafts what it lacks of its k tokens; then the target
verifies them while the draft guesses the target's next token and drafts as many more behind the guess:

    step = passes for what is lacking + max(target pass, passes ahead and prefill of the draft) + host

If all k are accepted and the guess is right, the next step finds its draft made; else those tokens are thrown away. The
paper's target verifies the guess in the next step; here it is compared with the bonus token, which emits the same
tokens, so that runs differ from serial ones in time alone [O]. A step waits for the whole chunk that is drafted ahead,
and KV slots of tokens that are not proposed yet are not reserved [O].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.replay.cost import ForwardCost
from sim.replay.passes import Meter, chain, prefill_pass

Mask = NDArray[np.bool_]


@dataclass(slots=True)
class Chunks:
    """What sequences draft, int64[B] or, of N alternatives, [N, B] each.

    first     new tokens in the first pass
    start     tokens that pass reads
    lacking   tokens to draft before they can be verified
    ahead     tokens to draft while they are verified, the guess among them
    follow    tokens that the first of those passes reads
    drafted   tokens that are drafted by the end of the step, whenever that was
    standing  tokens that the next step finds drafted, if this one is accepted whole and the guess is right
    """

    first: Ints
    start: Ints
    lacking: Ints
    ahead: Ints
    follow: Ints
    drafted: Ints
    standing: Ints


class Ahead:
    """Which tokens stand drafted already, by slot, and what it takes to draft the others.

    padded: sequences that draft go through as many passes as the longest of them; else each leaves after its own.
    """

    def __init__(self, cost: ForwardCost, meter: Meter, padded: bool) -> None:
        self.cost, self.meter, self.padded = cost, meter, padded
        self._standing = np.zeros(0, np.int64)

    def chunks(self, batch: DecodeBatch, proposed: Ints) -> Chunks:
        """What it takes to propose so many tokens, int64[B] or [N, B]."""
        missing = int(batch.slot.max(initial=-1)) + 1 - len(self._standing)
        if missing > 0:
            self._standing = np.concatenate([self._standing, np.zeros(missing, np.int64)])
        standing, known = self._standing[batch.slot], batch.known_tokens
        follow = np.maximum(proposed, standing)
        # after k + 1 tokens, a draft of k again, or as many as the request then has left but for one
        wanted = np.minimum(proposed, batch.remaining - proposed - 2)
        goes_on = (proposed > 0) & (wanted > 0)
        ahead = np.where(goes_on, np.maximum(1 + wanted - (follow - proposed), 0), 0)
        return Chunks(
            first=np.where(standing > 0, 1, np.maximum(known - batch.draft_tokens, 1)),
            start=known + standing,
            lacking=np.maximum(proposed - standing, 0),
            ahead=ahead,
            follow=known + follow,
            drafted=follow + ahead,
            standing=np.where(goes_on, follow - proposed + ahead - 1, 0),
        )

    def draft(self, chunks: Chunks, context: list[int], chunk: list[int]) -> tuple[float, float, float]:
        """Seconds before the target's pass, beside it with prefill chunks of the draft, and beside it without them."""
        before = self.meter.total(self.cost, *self._lacking(chunks, chunks.lacking[None]))
        sums = self._ahead(chunks, chunks.ahead[None])
        if not chunk:
            beside = self.meter.total(self.cost, *sums)
            return before, beside, beside
        alone = float(self.cost.seconds(*sums).sum())
        # prefill rides in the first pass, or in one of its own
        own = (*prefill_pass(context, chunk), len(chunk))
        both = [total[0] if total.size else np.zeros(1) for total in sums]
        for total, more in zip(both, own, strict=True):
            total[0] += more
        return before, self.meter.total(self.cost, *both), alone

    def seconds_many(self, batch: DecodeBatch, lengths: Ints) -> tuple[Floats, Floats]:
        """Seconds before and beside the target's pass of N alternatives int64[N, B], without prefill: float64[N]."""
        chunks = self.chunks(batch, lengths)
        before = self.cost.seconds(*self._lacking(chunks, chunks.lacking))
        beside = self.cost.seconds(*self._ahead(chunks, chunks.ahead))
        return np.asarray(before.sum(axis=1)), np.asarray(beside.sum(axis=1))

    def _lacking(self, chunks: Chunks, count: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        return chain(chunks.first, chunks.start, count, self.padded)

    def _ahead(self, chunks: Chunks, count: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        return chain(np.ones_like(chunks.first), chunks.follow, count, self.padded)

    def keep(self, batch: DecodeBatch, chunks: Chunks, accepted: Ints, stands: Mask) -> tuple[Ints, float]:
        """Book the verdict. stands: bool[B], all was accepted and the guess was right.

        Returns the tokens that are, rightly, in the draft's KV cache, int64[B], and the share of what was drafted ahead
        that is thrown away.
        """
        stands = stands & (chunks.standing > 0)
        self._standing[batch.slot] = np.where(stands, chunks.standing, 0)
        # of what is drafted it has processed all but the last
        cached = batch.known_tokens + np.minimum(accepted + stands, chunks.drafted - 1)
        ahead = int(chunks.ahead.sum())
        thrown = int(chunks.ahead @ ~stands) / ahead if ahead else 0.0
        return np.where(chunks.drafted > 0, cached, batch.draft_tokens), thrown

    def release(self, slots: list[int]) -> None:
        """These sequences left, and what was drafted for them."""
        self._standing[[slot for slot in slots if slot < len(self._standing)]] = 0
