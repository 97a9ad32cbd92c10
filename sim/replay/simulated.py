"""The simulated executor: durations from the cost model, acceptance from recorded windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Accept, Outcome, Plan, StepTime, Stop, Trim, standing
from sim.replay.acceptance import Replay, ReplaySignals
from sim.replay.cost import ForwardCost
from sim.replay.profile import Profile
from traces.errors import InputError


@dataclass(frozen=True)
class Execution:
    """How the engine runs its passes.

    draft   padded: every decoding sequence goes through all max k draft passes, as engines do; compact: a sequence
            leaves the draft batch after its own k
    verify  ragged: sum(k_i + 1) tokens; padded: everyone verifies max k + 1
    """

    draft: Literal["padded", "compact"] = "padded"
    verify: Literal["ragged", "padded"] = "ragged"


class SimulatedExecutor:
    """Answers for the hardware and the models of one engine. `outside` counts passes beyond the measured range."""

    def __init__(self, profile: Profile, replay: Replay, execution: Execution) -> None:
        if profile.draft_kind not in ("autoregressive", "early-exit"):  # one pass for each draft token
            raise InputError(f"profile {profile.name}: draft kind {profile.draft_kind!r} is not simulated yet")
        self.target: ForwardCost = profile.target
        self.draft: ForwardCost = profile.draft
        self.host = profile.host
        self.replay = replay
        self.execution = execution
        self.max_draft_tokens = replay.windows.depth
        self.passes = 0
        self.outside = 0

    def run(self, plan: Plan, stop: Stop | None, trim: Trim | None, accept: Accept | None = None) -> Outcome:
        batch, lengths = plan.decode, plan.lengths
        row = self.replay.row(batch.request, batch.emitted)
        depth = int(lengths.max()) if len(batch) else 0
        runs = self.replay.runs(batch, row, depth)
        signals = ReplaySignals(self.replay, batch, row, runs, depth)
        proposed = self._stopped(batch, lengths, stop, signals) if stop and depth else lengths
        verified = np.minimum(trim(batch, proposed, signals), proposed) if trim and depth else proposed
        accepted, by_rule = np.minimum(runs, verified), None
        if accept and depth:
            exact = self.replay.exact(batch, row, depth)
            accepted, by_rule = standing(exact, accept(batch, depth, signals), verified)
        drafted = int(proposed.max()) if depth else 0
        return Outcome(
            proposed=proposed,
            verified=verified,
            accepted=accepted,
            emitted=accepted + 1,
            ended=np.zeros(len(batch), np.bool_),
            draft_tokens=self._draft_tokens(batch, proposed, accepted, drafted),
            signals=signals,
            time=self.step_time(plan, proposed, verified),
            by_rule=by_rule,
        )

    def release(self, slots: list[int]) -> None:
        """Nothing to free: the replay holds no state per slot."""

    def accepted_runs(self, batch: DecodeBatch) -> Ints:
        row = self.replay.row(batch.request, batch.emitted)
        return self.replay.runs(batch, row, self.max_draft_tokens)

    def step_seconds(self, batch: DecodeBatch, lengths: Ints) -> float:
        return float(self.step_seconds_many(batch, lengths[None])[0])

    def step_seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        return self._draft_seconds_many(batch, lengths, lengths.max(axis=1)) + self.verify_seconds_many(batch, lengths)

    def verify_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        query = 1 + (verified.max(axis=1)[:, None] if self.execution.verify == "padded" else verified)
        query = np.broadcast_to(query, verified.shape)
        new = query.sum(axis=1)
        # the same sums as in _decode_pass
        pairs = query @ batch.known_tokens + (np.einsum("ij,ij->i", query, query) - new) // 2
        verify_s = self.target.seconds(new, batch.sum_known_tokens + new - len(batch), pairs, len(batch))
        return np.asarray(verify_s + self.host.seconds(len(batch)))

    def _draft_seconds_many(self, batch: DecodeBatch, lengths: Ints, drafted: Ints) -> Floats:
        """The draft passes of N alternatives without prefill, float64[N]; the sums of _draft_seconds."""
        known, depth = batch.known_tokens, int(drafted.max())
        if depth == 0:
            return np.zeros(len(lengths))
        behind = known - batch.draft_tokens
        first_pairs = behind * known - behind * (behind - 1) // 2
        if self.execution.draft == "padded":
            # every alternative makes the same passes, only more or fewer of them
            passes, seqs, read = np.arange(depth), len(batch), batch.sum_known_tokens
            new, pairs = np.full(depth, seqs), read + seqs * passes
            new[0], kv = int(behind.sum()), pairs.copy()
            pairs[0] = int(first_pairs.sum())
            seconds = np.concatenate([[0.0], np.cumsum(self.draft.seconds(new, kv, pairs, seqs))])
            return np.asarray(seconds[drafted])
        passes = np.arange(depth)
        still = (lengths[:, None, :] > passes[:, None]).astype(np.float64)  # [N, depth, B]
        left = still.sum(axis=2)
        kv = still @ known.astype(np.float64) + left * passes
        new, pairs = left.copy(), kv.copy()
        new[:, 0], pairs[:, 0] = still[:, 0] @ behind, still[:, 0] @ first_pairs
        return np.asarray(self.draft.seconds(new, kv, pairs, left).sum(axis=1))

    def _stopped(self, batch: DecodeBatch, lengths: Ints, stop: Stop, signals: ReplaySignals) -> Ints:
        """Draft lengths after the policy's stop rule, asked after every draft token as in a live draft loop."""
        proposed = np.zeros_like(lengths)
        drafting = lengths > 0
        for depth in range(1, int(lengths.max()) + 1):
            proposed[drafting] = depth
            drafting &= ~stop(batch, depth, signals) & (lengths > depth)
            if not drafting.any():
                break
        return proposed

    def _draft_tokens(self, batch: DecodeBatch, proposed: Ints, accepted: Ints, drafted: int) -> Ints:
        """What the draft's KV cache rightly holds: it never processes the last token it proposes itself."""
        if drafted == 0:
            return batch.draft_tokens
        padded = self.execution.draft == "padded"
        own = (drafted if padded else proposed) - 1
        caught_up = batch.known_tokens + np.minimum(accepted, own)
        return caught_up if padded else np.where(proposed > 0, caught_up, batch.draft_tokens)

    # time

    def step_time(self, plan: Plan, proposed: Ints, verified: Ints) -> StepTime:
        """What the cost model says of a step in which each sequence proposed and verified so many draft tokens."""
        batch = plan.decode
        drafted = int(proposed.max(initial=0))
        draft_s = 0.0
        if plan.speculates:
            draft_s = self._draft_seconds(batch, proposed, drafted, plan.prefill_context, plan.prefill_tokens)
        if self.execution.verify == "padded" and drafted:
            verified = np.full(len(batch), int(verified.max()))
        new, kv, pairs, seqs = _decode_pass(batch, verified)
        verify_s = self._seconds(self.target, new, kv, pairs, seqs) if seqs else 0.0
        prefill_s = 0.0
        if plan.prefill_slot:
            chunk_new, chunk_kv, chunk_pairs = _prefill_pass(plan.prefill_context, plan.prefill_tokens)
            seqs += len(plan.prefill_slot)
            both_s = self._seconds(self.target, new + chunk_new, kv + chunk_kv, pairs + chunk_pairs, seqs)
            prefill_s = max(both_s - verify_s, 0.0)  # the chunks ride in the same pass and pay what they add
            verify_s = both_s - prefill_s
        return StepTime(draft_s, verify_s, prefill_s, self.host.seconds(plan.num_seqs))

    def _draft_seconds(
        self, batch: DecodeBatch, proposed: Ints, drafted: int, context: list[int], chunk: list[int]
    ) -> float:
        """One pass that catches up on committed tokens and prefill chunks, then one pass per further draft token."""
        new, kv, pairs = _prefill_pass(context, chunk)
        seqs = len(chunk)
        if drafted:
            known, read = batch.known_tokens, batch.sum_known_tokens
            behind = known - batch.draft_tokens
            if self.execution.draft == "compact":
                rows = proposed > 0
                known, behind = known[rows], behind[rows]
                read = int(known.sum())
            total = int(behind.sum())
            new += total
            kv += read
            pairs += int(behind @ known) - _triangle(behind, total)
            seqs += len(known)
        seconds = self._seconds(self.draft, new, kv, pairs, seqs) if seqs else 0.0
        for left, context_tokens, passes in self._further_passes(batch, proposed, drafted):
            seconds += self._seconds(
                self.draft, left, context_tokens + left * passes, context_tokens + left * passes, left
            )
        return seconds

    def _further_passes(self, batch: DecodeBatch, proposed: Ints, drafted: int) -> Iterator[tuple[int, int, int]]:
        """For draft token 2, 3, ...: sequences in its pass, their known tokens in all, draft tokens read before it."""
        if self.execution.draft == "padded":
            yield from ((len(batch), batch.sum_known_tokens, passes) for passes in range(1, drafted))
            return
        for passes in range(1, drafted):
            still = proposed > passes
            yield int(still.sum()), int(batch.known_tokens @ still), passes

    def _seconds(self, cost: ForwardCost, new: int, kv: int, pairs: int, seqs: int) -> float:
        self._count(cost, new, kv, seqs, 1)
        return cost.seconds(new, kv, pairs, seqs)

    def _count(self, cost: ForwardCost, new: float, kv: float, seqs: float, passes: int) -> None:
        self.passes += passes
        if cost.outside(new, kv, seqs):
            self.outside += passes


def _triangle(tokens: Ints, total: int) -> int:
    """Sum of q (q - 1) / 2, `total` being the sum of q: what q new tokens do not see of q * context pairs."""
    return (int(tokens @ tokens) - total) // 2


def _decode_pass(batch: DecodeBatch, verified: Ints) -> tuple[int, int, int, int]:
    """New tokens, KV tokens, query-key pairs and sequences of a target pass over 1 + verified tokens each."""
    known, query = batch.known_tokens, verified + 1
    drafts = int(verified.sum())
    # a sequence has known - 1 tokens in the cache; its query number i sees known - 1 + i of them
    new = len(query) + drafts
    pairs = int(query @ known) + _triangle(query, new)
    return new, batch.sum_known_tokens + drafts, pairs, len(query)


def _prefill_pass(context: list[int], tokens: list[int]) -> tuple[int, int, int]:
    """New tokens, KV tokens and query-key pairs of prefill chunks behind `context` tokens each."""
    new = sum(tokens)
    pairs = sum(done * chunk + chunk * (chunk + 1) // 2 for done, chunk in zip(context, tokens, strict=True))
    return new, sum(context) + new, pairs
