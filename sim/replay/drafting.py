"""What a draft of k tokens costs, by kind of draft.

    autoregressive  a model, k passes; the first also catches up on what was committed, and carries prefill chunks
    early-exit      the same passes, of a part of the target
    eagle           the same passes; what it cached of its own tokens rests on its own hidden states and is made anew
                    from the target's (EAGLE, arXiv 2401.15077), so it catches up on every accepted token
    parallel        one pass, whatever k: each of the k - 1 further positions is one more new token of it (PARD arXiv
                    2504.18583, DFlash; Medusa's heads cost less) [O]
    ngram           one look-up on the host for each sequence that drafts; it may find fewer than k tokens, or none

Costs of models are those of the profile's draft.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.replay.cost import ForwardCost
from sim.replay.passes import Meter, chain, prefill_pass, triangle
from sim.replay.profile import Model, Profile
from traces.errors import InputError

LOOK_UP = ForwardCost.affine(1e-7, per_kv_token_s=2e-9, per_seq_s=1e-5)
LOOK_UP_PROVENANCE = (
    "stated prior: 10 us a sequence and 2 ns a token of text, as for a compiled look-up (`calibrate --draft ngram` "
    "measures yours); the KV pool still leaves room for the draft model"
)


class Drafting(Protocol):
    """The cost of one kind of draft.

    asked, proposed   int64[B]: the lengths that were scheduled, and what came of them; drafted is the longest of these
    """

    at_once: bool
    """Whether all tokens come at the same moment, so that no rule can stop a draft."""

    def seconds(
        self, batch: DecodeBatch, asked: Ints, proposed: Ints, drafted: int, context: list[int], chunk: list[int]
    ) -> float:
        """Draft, and prefill chunks of the draft model behind `context` tokens each."""

    def seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        """Draft N alternatives int64[N, B] without prefill: float64[N]."""

    def cached_tokens(self, batch: DecodeBatch, proposed: Ints, accepted: Ints, drafted: int) -> Ints:
        """Tokens of each sequence that are, rightly, in the draft's KV cache afterwards: int64[B]."""


class TokenByToken:
    """One pass for each token. reuses: whether what it cached while drafting still holds for accepted tokens."""

    at_once = False

    def __init__(self, cost: ForwardCost, meter: Meter, padded: bool, reuses: bool = True) -> None:
        self.cost, self.meter, self.padded, self.reuses = cost, meter, padded, reuses

    def seconds(
        self, batch: DecodeBatch, asked: Ints, proposed: Ints, drafted: int, context: list[int], chunk: list[int]
    ) -> float:
        """One pass that catches up on committed tokens and prefill chunks, then one pass per further draft token."""
        new, kv, pairs = prefill_pass(context, chunk)
        seqs = len(chunk)
        if drafted:
            known, read = batch.known_tokens, batch.sum_known_tokens
            behind = known - batch.draft_tokens
            if not self.padded:
                rows = proposed > 0
                known, behind = known[rows], behind[rows]
                read = int(known.sum())
            total = int(behind.sum())
            new += total
            kv += read
            pairs += int(behind @ known) - triangle(behind, total)
            seqs += len(known)
        seconds = self.meter.seconds(self.cost, new, kv, pairs, seqs) if seqs else 0.0
        left, read = len(batch), batch.sum_known_tokens
        for passes in range(1, drafted):
            if not self.padded:
                still = proposed > passes
                left, read = int(still.sum()), int(batch.known_tokens @ still)
            kv = read + left * passes
            seconds += self.meter.seconds(self.cost, left, kv, kv, left)
        return seconds

    def seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        known = batch.known_tokens
        behind = known - batch.draft_tokens
        if not self.padded:
            return np.asarray(self.cost.seconds(*chain(behind, known, lengths, padded=False)).sum(axis=1))
        # every alternative makes the same passes of all sequences, only more or fewer of them
        drafted = lengths.max(axis=1)
        num_seqs, read, total = len(batch), batch.sum_known_tokens, int(behind.sum())
        new, pairs, seconds = total, int(behind @ known) - triangle(behind, total), [0.0]
        for _ in range(int(drafted.max())):
            seconds.append(seconds[-1] + self.cost.seconds(new, read, pairs, num_seqs))
            read += num_seqs
            new, pairs = num_seqs, read
        return np.asarray(np.array(seconds)[drafted])

    def cached_tokens(self, batch: DecodeBatch, proposed: Ints, accepted: Ints, drafted: int) -> Ints:
        """It never processes the last token it proposes itself."""
        if drafted == 0:
            return batch.draft_tokens
        own = (drafted if self.padded else proposed) - 1 if self.reuses else 0
        caught_up = batch.known_tokens + np.minimum(accepted, own)
        return caught_up if self.padded else np.where(proposed > 0, caught_up, batch.draft_tokens)


class OnePass:
    """All tokens in one pass. Positions beyond the first hold no text, so the cache keeps committed tokens alone."""

    at_once = True

    def __init__(self, cost: ForwardCost, meter: Meter, padded: bool) -> None:
        self.cost, self.meter, self.padded = cost, meter, padded

    def _sums(self, batch: DecodeBatch, lengths: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """New tokens, KV tokens, pairs and sequences of N alternatives, int64[N] each."""
        if self.padded:
            lengths = np.broadcast_to(lengths.max(axis=1, initial=0)[:, None], lengths.shape)
        rows = lengths > 0
        new = (batch.known_tokens - batch.draft_tokens + lengths - 1) * rows
        end = (batch.known_tokens + lengths - 1) * rows
        pairs = new * end - new * (new - 1) // 2
        return new.sum(axis=1), end.sum(axis=1), pairs.sum(axis=1), rows.sum(axis=1)

    def seconds(
        self, batch: DecodeBatch, asked: Ints, proposed: Ints, drafted: int, context: list[int], chunk: list[int]
    ) -> float:
        new, kv, pairs, seqs = (int(total[0]) for total in self._sums(batch, proposed[None]))
        if seqs + len(chunk) == 0:
            return 0.0
        chunk_new, chunk_kv, chunk_pairs = prefill_pass(context, chunk)
        return self.meter.seconds(self.cost, new + chunk_new, kv + chunk_kv, pairs + chunk_pairs, seqs + len(chunk))

    def seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        return np.asarray(self.cost.seconds(*self._sums(batch, lengths)))

    def cached_tokens(self, batch: DecodeBatch, proposed: Ints, accepted: Ints, drafted: int) -> Ints:
        rows = drafted > 0 if self.padded else proposed > 0
        return np.where(rows, batch.known_tokens, batch.draft_tokens)


class LookUp:
    """Text that followed before, found on the host: as long as it looks, the GPU waits."""

    at_once = True

    def __init__(self, cost: ForwardCost) -> None:
        self.cost = cost

    def seconds(
        self, batch: DecodeBatch, asked: Ints, proposed: Ints, drafted: int, context: list[int], chunk: list[int]
    ) -> float:
        return float(self.seconds_many(batch, asked[None])[0])

    def seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        rows = lengths > 0
        seqs = rows.sum(axis=1)
        return np.asarray(self.cost.seconds(seqs, rows @ batch.known_tokens, 0, seqs))

    def cached_tokens(self, batch: DecodeBatch, proposed: Ints, accepted: Ints, drafted: int) -> Ints:
        return batch.draft_tokens  # there is no cache


def drafting(kind: str, cost: ForwardCost, meter: Meter, padded: bool) -> Drafting:
    """The cost of a kind of sim.replay.profile.DRAFT_KINDS."""
    if kind == "ngram":
        return LookUp(cost)
    if kind == "parallel":
        return OnePass(cost, meter, padded)
    return TokenByToken(cost, meter, padded, reuses=kind != "eagle")


def with_draft_kind(profile: Profile, kind: str | None) -> Profile:
    """The profile as if its draft were of another kind (None: its own). Raises InputError where it has no such costs.

    The draft's passes cost what they did; for `ngram` a stated prior stands in.
    """
    if kind in (None, profile.draft_kind):
        return profile
    if profile.draft_kind == "ngram":
        raise InputError(
            f"--draft-kind {kind}: profile {profile.name} drafts by look-up and holds no costs of a draft model"
        )
    if kind == "ngram":
        told = {what: text for what, text in profile.provenance.items() if what != "draft"}
        told["look-up"] = LOOK_UP_PROVENANCE
        model = Model("ngram", "ngram", 0, 0, 0, "none", 1)
        return replace(profile, draft_kind=kind, draft=LOOK_UP, draft_model=model, provenance=told)
    told = {
        **profile.provenance,
        "draft kind": f"modelled: {kind} passes at the cost of {profile.draft_model.name}, {profile.draft_kind} in the "
        "profile",
    }
    return replace(profile, draft_kind=kind, provenance=told)
