"""The simulated executor: durations from the cost model, acceptance from recorded windows."""

from __future__ import annotations

import numpy as np

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Accept, Outcome, Plan, StepTime, Stop, Trim, Values, standing
from sim.replay.acceptance import Replay, ReplaySignals
from sim.replay.ahead import Ahead
from sim.replay.drafting import drafting
from sim.replay.execution import Execution
from sim.replay.passes import Meter, decode_pass, prefill_pass
from sim.replay.profile import Profile
from traces.errors import InputError


class SimulatedExecutor:
    """Answers for the hardware and the models of one engine. Raises InputError for options that do not go together."""

    def __init__(self, profile: Profile, replay: Replay, execution: Execution) -> None:
        kind, padded = profile.draft_kind, execution.draft == "padded"
        self.meter = Meter()
        self.target = execution.costs(profile.target)
        self.draft = profile.draft if kind == "ngram" else execution.costs(profile.draft)
        self.host = profile.host
        self.replay = replay
        self.execution = execution
        self.drafting = drafting(kind, self.draft, self.meter, padded)
        self.ahead = self._ahead(kind, padded) if execution.overlap else None
        # the last depth of a window says whether the guess behind the longest draft was right
        self.max_draft_tokens = replay.windows.depth - execution.overlap
        self._found = replay.windows.proposed if kind == "ngram" else None
        self._width: int | None = None  # of the last verification

    def _ahead(self, kind: str, padded: bool) -> Ahead:
        if kind != "autoregressive":
            raise InputError(
                f"--overlap needs a draft of its own that makes one token after another (autoregressive), not {kind}"
            )
        return Ahead(self.draft, self.meter, padded)

    @property
    def passes(self) -> int:
        """Forward passes that were looked up in the cost model."""
        return self.meter.passes

    @property
    def outside(self) -> int:
        """Those of them beyond its measured range."""
        return self.meter.outside

    def run(self, plan: Plan, stop: Stop | None, trim: Trim | None, accept: Accept | None = None) -> Outcome:
        batch, lengths = plan.decode, plan.lengths
        row = self.replay.row(batch.request, batch.emitted)
        depth = int(lengths.max()) if len(batch) else 0
        runs = self.replay.runs(batch, row, depth)
        signals = ReplaySignals(self.replay, batch, row, runs, depth)
        proposed = self._stopped(batch, lengths, stop, signals) if stop and depth else lengths
        if self._found is not None:
            proposed = np.minimum(proposed, self._found[row])
        verified = np.minimum(trim(batch, proposed, signals), proposed) if trim and depth else proposed
        accepted, by_rule = np.minimum(runs, verified), None
        if accept and depth:
            most = int(verified.max())
            accepted, by_rule = standing(self.replay.exact(batch, row, most), accept(batch, most, signals), verified)
        time, draft_tokens = self._step(plan, row, proposed, verified, accepted)
        return Outcome(
            proposed=proposed,
            verified=verified,
            accepted=accepted,
            emitted=accepted + 1,
            ended=np.zeros(len(batch), np.bool_),
            draft_tokens=draft_tokens,
            signals=signals,
            time=time,
            by_rule=by_rule,
        )

    def release(self, slots: list[int]) -> None:
        """The replay holds no state per slot; what was drafted ahead is thrown away."""
        if self.ahead:
            self.ahead.release(slots)

    def accepted_runs(self, batch: DecodeBatch) -> Ints:
        row = self.replay.row(batch.request, batch.emitted)
        runs = self.replay.runs(batch, row, self.max_draft_tokens)
        return runs if self._found is None else np.minimum(runs, self._found[row])

    def acceptance_chances(self, batch: DecodeBatch) -> Values:
        row = self.replay.row(batch.request, batch.emitted)
        return self.replay.windows.accept[row, : self.max_draft_tokens]

    def step_seconds(self, batch: DecodeBatch, lengths: Ints) -> float:
        return float(self.step_seconds_many(batch, lengths[None])[0])

    def step_seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        target_s = self._verify_seconds_many(batch, lengths)
        if self.ahead:
            before_s, beside_s = self.ahead.seconds_many(batch, lengths)
            passes_s = before_s + np.maximum(target_s, beside_s)
        else:
            passes_s = self.drafting.seconds_many(batch, lengths) + target_s
        return np.asarray(passes_s + self._host_seconds_many(batch, lengths))

    def verify_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        return self._verify_seconds_many(batch, verified) + self._host_seconds_many(batch, verified)

    def _verify_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        if self.execution.verify == "padded":
            verified = np.broadcast_to(verified.max(axis=1)[:, None], verified.shape)
        query = verified + 1.0  # as floats, in which products are fast and, below 2^53, exact
        new = query.sum(axis=1)
        # the same sums as in decode_pass
        pairs = query @ batch.known_tokens.astype(np.float64) + (np.einsum("ij,ij->i", query, query) - new) / 2
        return np.asarray(self.target.seconds(new, batch.sum_known_tokens + new - len(batch), pairs, len(batch)))

    def _host_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        """Host time, the cost of another width included."""
        host_s = np.full(len(verified), self.host.seconds(len(batch)))
        if self.execution.switch_cost_ms and self._width is not None:
            host_s[verified.max(axis=1) != self._width] += self.execution.switch_cost_ms / 1e3
        return host_s

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

    # time

    def step_time(self, plan: Plan, proposed: Ints, verified: Ints) -> StepTime:
        """What the cost model says of a step in which each sequence proposed and verified so many draft tokens.

        Not for an engine that drafts ahead, where it also depends on what was accepted.
        """
        time = self._target_time(plan, verified)
        if plan.speculates:
            drafted = int(proposed.max(initial=0))
            time.draft_s = self.drafting.seconds(
                plan.decode, plan.lengths, proposed, drafted, plan.prefill_context, plan.prefill_tokens
            )
        return time

    def _step(self, plan: Plan, row: Ints, proposed: Ints, verified: Ints, accepted: Ints) -> tuple[StepTime, Ints]:
        """Time of the step, and what the draft's KV cache rightly holds after it."""
        batch = plan.decode
        if self.ahead is None or not plan.speculates:
            drafted = int(proposed.max(initial=0))
            draft_tokens = self.drafting.cached_tokens(batch, proposed, accepted, drafted)
            return self.step_time(plan, proposed, verified), draft_tokens
        time, chunks = self._target_time(plan, verified), self.ahead.chunks(batch, proposed)
        before_s, beside_s, ahead_s = self.ahead.draft(chunks, plan.prefill_context, plan.prefill_tokens)
        target_s = time.verify_s + time.prefill_s
        stands = (accepted == proposed) & self.replay.passes(batch, row, proposed)
        draft_tokens, thrown = self.ahead.keep(batch, chunks, accepted, stands)
        time.draft_s = before_s + max(beside_s - target_s, 0.0)
        time.hidden_draft_s = min(beside_s, target_s)
        time.wasted_draft_s = thrown * ahead_s
        return time, draft_tokens

    def _target_time(self, plan: Plan, verified: Ints) -> StepTime:
        """The target's pass and the host."""
        batch, switch_s = plan.decode, 0.0
        width = int(verified.max(initial=0))
        if len(batch):
            if self._width not in (None, width):
                switch_s = self.execution.switch_cost_ms / 1e3
            self._width = width
        if self.execution.verify == "padded" and width:
            verified = np.full(len(batch), width)
        new, kv, pairs, seqs = decode_pass(batch, verified)
        seconds = self.meter.seconds
        verify_s = seconds(self.target, new, kv, pairs, seqs) if seqs else 0.0
        prefill_s = 0.0
        if plan.prefill_slot:
            chunk_new, chunk_kv, chunk_pairs = prefill_pass(plan.prefill_context, plan.prefill_tokens)
            seqs += len(plan.prefill_slot)
            both_s = seconds(self.target, new + chunk_new, kv + chunk_kv, pairs + chunk_pairs, seqs)
            prefill_s = max(both_s - verify_s, 0.0)  # the chunks ride in the same pass and pay what they add
            verify_s = both_s - prefill_s
        return StepTime(0.0, verify_s, prefill_s, self.host.seconds(plan.num_seqs) + switch_s, switch_s=switch_s)
