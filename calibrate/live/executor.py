"""The live executor: what the scheduler planned, done by two real models. See sim.control.executor.Executor.

A step drafts, then one pass of the target verifies all drafts and reads all prompt chunks, then the draft reads the
chunks. The scheduler's slots are the slots of both caches; a token's place in the cache is its place in the text, so
that a rollback is a smaller length and a preempted sequence is simply read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.bucket import BUCKET
from calibrate.live.clock import Marks
from calibrate.live.drafting import Draft, Drafting
from calibrate.live.luck import Luck
from calibrate.live.passes import passes_for
from calibrate.live.rows import Rows, alike, ragged_index
from calibrate.live.signals import LiveSignals
from calibrate.live.texts import Texts
from calibrate.live.verify import Stands, Verdict, verify
from calibrate.pairs import Pair
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling
from calibrate.writing import choose
from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Accept, Outcome, Plan, StepTime, Stop, Trim, Values, standing
from sim.replay.simulated import SimulatedExecutor
from traces.errors import InputError

ONLY_REPLAY = "this policy asks what will be accepted, which only a replay knows: it cannot run live"

Since = Callable[[], float]
"""Seconds since the step was begun, scheduling included."""


@dataclass(frozen=True)
class LiveSettings:
    """What does not change while an engine runs.

    max_num_seqs, max_model_len  of the scheduler: slots, and tokens of the longest text
    max_draft_tokens             the longest draft
    sampling                     of both models
    compact                      whether a sequence leaves the draft's passes after its own draft
    ignore_eos                   whether texts go on beyond an end token, up to their limit
    seed                         of all draws
    """

    max_num_seqs: int
    max_model_len: int
    max_draft_tokens: int
    sampling: Sampling
    compact: bool = False
    ignore_eos: bool = False
    seed: int = 0


class LiveExecutor:
    """Runs the steps of one engine.

    pair    the models
    texts   of the requests of the workload, which this executor continues
    since   how long the step has taken so far; None: steps take what `costs` says (a virtual clock)
    costs   the cost model, for policies that ask what a step would take, and for the virtual clock

    Raises InputError if the models' caches do not fit the memory, or the lengths not the models' positions.
    """

    def __init__(
        self, pair: Pair, texts: Texts, settings: LiveSettings, *, since: Since | None, costs: SimulatedExecutor | None
    ) -> None:
        if since is None and costs is None:
            raise ValueError("a virtual clock needs a cost model")
        self.pair = pair
        self.texts = texts
        self.settings = settings
        self.max_draft_tokens = settings.max_draft_tokens
        self._since = since
        self._costs = costs
        # one more slot for tokens that only fill up a pass, and room for drafts that run beyond the longest text
        length = settings.max_model_len + settings.max_draft_tokens + 1
        self._positions = max(length, BUCKET)
        limit = pair.max_positions
        if limit is not None and settings.max_model_len + settings.max_draft_tokens > limit:
            raise InputError(
                f"texts of {settings.max_model_len} tokens and drafts of {settings.max_draft_tokens} do not fit the "
                f"target's {limit} positions; give --max-model-len {limit - settings.max_draft_tokens} or less"
            )
        self.target = ModelRunner(pair.target, max_num_seqs=settings.max_num_seqs + 1, max_model_len=self._positions)
        self.passes_of_target = passes_for(self.target)
        self._luck = Luck(settings.seed, len(texts), 1 + 2 * settings.max_draft_tokens)
        self._ends = np.array([] if settings.ignore_eos else sorted(pair.end_tokens), np.int64)
        self._marks = Marks(pair.device)
        self._drafting: Drafting | None = None
        self._before: torch.Tensor | None = None

    def prepare(self, speculates: bool) -> None:
        """Make the draft's cache if it is needed, and warm up. Raises InputError if it does not fit."""
        if speculates:
            self._drafting = self._open_draft()
        self._warm_up()

    def _open_draft(self) -> Drafting:
        settings, drafter, device = self.settings, self.pair.drafter, self.pair.device
        if drafter.needs_hidden:
            width = self.target.model.get_output_embeddings().weight.shape[1]
            shape = (settings.max_num_seqs, self._positions + 1, width)
            self._before = torch.zeros(shape, dtype=self.pair.dtype, device=device)
        return Drafting(
            drafter.session(settings.max_num_seqs, self._positions),
            self.texts,
            settings.sampling,
            compact=settings.compact,
            may_run_dry=drafter.model is None,
            before=self._before,
            device=device,
        )

    def _warm_up(self) -> None:
        """The first passes of a process are slow: some that no request pays for, in slots that are empty again."""
        size = self.settings.max_num_seqs
        for counts in (np.full(size, 1), np.full(size, 1 + min(4, self.max_draft_tokens)), np.array([4])):
            tokens = torch.zeros(int(counts.sum()), dtype=torch.long)
            slots = np.arange(len(counts))
            rows = Rows(tokens, slots, np.zeros(len(counts), np.int64), counts, (len(counts),))
            for _ in range(2):
                self.passes_of_target.forward(rows, None)
        if self._drafting is not None and self.pair.drafter.model is not None:
            session = self._drafting.session
            hidden = None if self._before is None else self._before[:size, :1]
            for _ in range(2):
                slots_ = torch.arange(size)
                session.begin(
                    slots_, torch.zeros(size, 1, dtype=torch.long), torch.ones(size, dtype=torch.long), hidden
                )
                session.step(torch.zeros(size, dtype=torch.long))
                session.commit(torch.zeros(size, dtype=torch.long))
                for slot in range(size):
                    session.reset(slot)
        if self.pair.device.type == "cuda":
            torch.cuda.synchronize(self.pair.device)

    # the protocol

    def run(self, plan: Plan, stop: Stop | None, trim: Trim | None, accept: Accept | None = None) -> Outcome:
        with torch.inference_mode():
            return self._run(plan, stop, trim, accept)

    def _run(self, plan: Plan, stop: Stop | None, trim: Trim | None, accept: Accept | None) -> Outcome:
        if plan.speculates and self._drafting is None:
            self._drafting = self._open_draft()
        batch = plan.decode
        order = np.argsort(batch.slot, kind="stable")  # neighbours in the cache are read without a copy
        back = np.argsort(order, kind="stable")
        depth = int(plan.lengths.max(initial=0))
        signals = LiveSignals(self.settings.sampling, back, depth)
        luck = self._draw(batch.request[order])
        self._marks.mark()
        draft, proposed, verified = self._draft(plan, order, back, signals, luck, stop, trim)
        self._marks.mark()
        decode = self._decode_rows(batch, order, draft, verified)
        chunks, chunk_of = self._chunks(plan)
        logits = self._target_pass(decode, chunks, plan)
        verdict, by_rule = self._verify(batch, logits, draft, verified, order, back, luck, signals, accept)
        prefill_ended = self._finish_chunks(plan, chunks, chunk_of, logits)
        self._marks.mark()
        emitted, ended = self._write(batch, order, verdict)
        if draft is not None and self._drafting is not None:
            self._drafting.commit(verdict.accepted)
        self._prefill_draft(plan)
        self._marks.mark()
        return Outcome(
            proposed=proposed,
            verified=verified,
            accepted=verdict.accepted[back],
            emitted=emitted[back],
            ended=ended[back],
            draft_tokens=self._drafting.lengths(batch.slot) if self._drafting is not None else batch.draft_tokens,
            signals=signals,
            time=self._time(plan, proposed, verified, int(decode.counts.sum())),
            prefill_ended=prefill_ended,
            by_rule=by_rule,
        )

    def release(self, slots: list[int]) -> None:
        if self._drafting is not None:
            for slot in slots:
                self._drafting.session.reset(slot)

    def accepted_runs(self, batch: DecodeBatch) -> Ints:
        raise InputError(ONLY_REPLAY)

    def acceptance_chances(self, batch: DecodeBatch) -> Values:
        raise InputError(ONLY_REPLAY)

    def step_seconds(self, batch: DecodeBatch, lengths: Ints) -> float:
        return self._cost_model().step_seconds(batch, lengths)

    def step_seconds_many(self, batch: DecodeBatch, lengths: Ints) -> Floats:
        return self._cost_model().step_seconds_many(batch, lengths)

    def verify_seconds_many(self, batch: DecodeBatch, verified: Ints) -> Floats:
        return self._cost_model().verify_seconds_many(batch, verified)

    def _cost_model(self) -> SimulatedExecutor:
        if self._costs is None:
            raise InputError("this policy asks what a step would take: give --profile, a calibration of this machine")
        return self._costs

    # drafting

    def _draw(self, requests: Ints) -> torch.Tensor:
        """Luck of a step's sequences [B, 1 + 2 D]: for the last token, the test of each draft token, its draw."""
        if self.settings.sampling.greedy:
            return torch.zeros(len(requests), 1 + 2 * self.max_draft_tokens)
        return torch.from_numpy(self._luck.draw(requests)).to(self.pair.device)

    def _draft(
        self,
        plan: Plan,
        order: Ints,
        back: Ints,
        signals: LiveSignals,
        luck: torch.Tensor,
        stop: Stop | None,
        trim: Trim | None,
    ) -> tuple[Draft | None, Ints, Ints]:
        """The draft in the order of the rows; tokens proposed and verified in that of the batch."""
        batch, lengths = plan.decode, plan.lengths
        if not lengths.any() or self._drafting is None:
            return None, lengths, lengths
        ask = None if stop is None else (lambda depth: stop(batch, depth, signals)[order])
        own = luck[:, 1 + self.max_draft_tokens :]
        draft = self._drafting.round(batch.slot[order], batch.request[order], lengths[order], signals, own, ask)
        proposed = draft.proposed[back]
        verified = proposed if trim is None else np.minimum(trim(batch, proposed, signals), proposed)
        return draft, proposed, verified

    def _prefill_draft(self, plan: Plan) -> None:
        """After the target's pass: some drafts read its hidden states."""
        if plan.prefill_slot and plan.speculates and self._drafting is not None:
            chunks = (plan.prefill_slot, plan.prefill_request, plan.prefill_tokens)
            self._drafting.prefill(*(np.array(column, np.int64) for column in chunks))

    # the target's pass

    def _decode_rows(self, batch: DecodeBatch, order: Ints, draft: Draft | None, verified: Ints) -> Rows:
        """The newest token of each sequence and its draft."""
        newest = torch.from_numpy(self.texts.newest(batch.request[order])).to(self.pair.device)
        counts = 1 + verified[order]
        tokens = newest
        if draft is not None and len(order):
            width = int(counts.max())
            tokens = torch.cat([newest[:, None], draft.tokens[:, : width - 1]], 1).flatten()
            if len(tokens) > counts.sum():
                tokens = tokens[torch.from_numpy(ragged_index(counts, width)).to(tokens.device)]
        together = (len(order),) if len(order) else ()
        return Rows(tokens, batch.slot[order], batch.known_tokens[order] - 1, counts, together)

    def _chunks(self, plan: Plan) -> tuple[Rows, Ints]:
        """Chunks of prompts, similar ones together, and which of the plan each is."""
        if not plan.prefill_slot:
            none = np.zeros(0, np.int64)
            return Rows(torch.zeros(0, dtype=torch.long), none, none, none, ()), none
        chunk_of, together = alike(np.array(plan.prefill_tokens, np.int64))
        requests, first, counts = (
            np.array(column, np.int64)[chunk_of]
            for column in (plan.prefill_request, plan.prefill_context, plan.prefill_tokens)
        )
        parts = [
            self.texts.chunk(*each) for each in zip(requests.tolist(), first.tolist(), counts.tolist(), strict=True)
        ]
        tokens = torch.from_numpy(np.concatenate(parts)) if parts else torch.zeros(0, dtype=torch.long)
        slots = np.array(plan.prefill_slot, np.int64)[chunk_of]
        return Rows(tokens.to(self.pair.device), slots, first, counts, together), chunk_of

    def _target_pass(self, decode: Rows, chunks: Rows, plan: Plan) -> torch.Tensor:
        """Logits of all decoding tokens, then of the last token of each chunk; keeps hidden states for the draft."""
        rows = decode
        if len(chunks.slots):
            rows = Rows(
                torch.cat([decode.tokens, chunks.tokens]),
                np.concatenate([decode.slots, chunks.slots]),
                np.concatenate([decode.context, chunks.context]),
                np.concatenate([decode.counts, chunks.counts]),
                decode.together + chunks.together,
            )
        own = len(decode.tokens)
        wanted = None
        if len(chunks.slots):
            wanted = np.concatenate([np.arange(own), own + chunks.first + chunks.counts - 1])
        output = self.passes_of_target.forward(rows, wanted)
        if self._before is not None:
            slots, after = (torch.from_numpy(places) for places in (rows.slot_of_token, rows.positions + 1))
            self._before[slots, after] = output.hidden.to(self._before.dtype)
        return output.logits[:, : self.pair.vocab_size]

    def _verify(
        self,
        batch: DecodeBatch,
        logits: torch.Tensor,
        draft: Draft | None,
        verified: Ints,
        order: Ints,
        back: Ints,
        luck: torch.Tensor,
        signals: LiveSignals,
        accept: Accept | None,
    ) -> tuple[Verdict, NDArray[np.bool_] | None]:
        """The verdict in the order of the rows; which tokens only a lossy rule let stand, in that of the batch."""
        if not len(batch):
            return Verdict(np.zeros(0, np.int64), np.zeros((0, 1), np.int64)), None
        counts = verified[order]
        own = logits[: int((counts + 1).sum())]
        signals.verified(own, counts)
        by_rule: list[NDArray[np.bool_]] = []

        def stands(exact: NDArray[np.bool_]) -> Ints:
            assert accept is not None
            depth = exact.shape[1]
            accepted, ruled = standing(exact[back], accept(batch, depth, signals)[:, :depth], verified)
            by_rule.append(ruled)
            return accepted[order]

        rule: Stands | None = stands if accept is not None else None
        verdict = verify(own, draft, counts, self.settings.sampling, luck, rule)
        return verdict, by_rule[0] if by_rule else None

    # what becomes text

    def _write(self, batch: DecodeBatch, order: Ints, verdict: Verdict) -> tuple[Ints, NDArray[np.bool_]]:
        """Append what holds, up to an end token or the limit; returns how many tokens and whose text ended."""
        counts, tokens = np.minimum(verdict.accepted + 1, batch.remaining[order]), verdict.tokens
        ends = np.isin(tokens, self._ends) & (np.arange(tokens.shape[1]) < counts[:, None])
        ended = np.asarray(ends.any(1))
        if ended.any():
            counts = np.where(ended, ends.argmax(1) + 1, counts)
        self.texts.append(batch.request[order], tokens, counts, ended)
        return counts, ended

    def _finish_chunks(self, plan: Plan, chunks: Rows, chunk_of: Ints, logits: torch.Tensor) -> frozenset[int]:
        """The first token after each text that is now read whole; returns the slots whose text ends with it."""
        if not len(chunk_of):
            return frozenset()
        requests = np.array(plan.prefill_request, np.int64)[chunk_of]
        whole = np.flatnonzero(chunks.context + chunks.counts == self.texts.length[requests])
        if not len(whole):
            return frozenset()
        requests = requests[whole]
        lines = len(logits) - len(chunk_of) + torch.from_numpy(whole)
        after = logits[lines.to(logits.device)]
        tokens = choose(after, self.settings.sampling, self._draw(requests)[:, 0]).cpu().numpy()
        if bool(after.amax(-1).isnan().any()):
            raise InputError("the target's logits are not numbers (NaN): its weights are damaged or overflow")
        ended = np.asarray(np.isin(tokens, self._ends))
        self.texts.append(requests, tokens[:, None], np.ones(len(whole), np.int64), ended)
        return frozenset(chunks.slots[whole[ended]].tolist())

    # time

    def _time(self, plan: Plan, proposed: Ints, verified: Ints, decode_tokens: int) -> StepTime:
        """Measured, or what the cost model says. A pass that verifies and reads prompts is split by its tokens."""
        draft_s, target_s, after_s = self._marks.read()[:3]
        if self._since is None:
            assert self._costs is not None
            return self._costs.step_time(plan, proposed, verified)
        chunk_tokens = sum(plan.prefill_tokens)
        share = chunk_tokens / (chunk_tokens + decode_tokens)
        draft_s += after_s if plan.speculates else 0.0
        host_s = max(self._since() - draft_s - target_s, 0.0)
        return StepTime(draft_s, target_s * (1 - share), target_s * share, host_s)
