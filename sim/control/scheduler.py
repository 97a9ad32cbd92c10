"""The vLLM V1 scheduler: a token budget per step, running sequences first, chunked prefill, preemption by recompute.

Order within a step: decoding sequences (oldest first), chunks of sequences already prefilling, then the queue, FCFS.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from sim.control.batch import Batch, DecodeBatch, Ints
from sim.control.executor import Outcome, Plan
from sim.control.kv_cache import KVCache
from sim.control.log import FINISHED, QUEUED, REJECTED, RUNNING, EventLog
from sim.control.speculation import Speculation, fit_to_budget
from traces.errors import InputError
from traces.workload import Workload

MOST_SEQS = 1_000_000


@dataclass(frozen=True)
class SchedulerConfig:
    """vLLM's limits of one engine.

    max_num_seqs            sequences that run at once
    max_num_batched_tokens  tokens of one step, drafts included
    max_model_len           longest prompt + output
    temperature             of every request; 0 is greedy
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 131072
    temperature: float = 0.0

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, expected at least 1")
        if self.max_num_seqs > MOST_SEQS:
            raise InputError(f"max_num_seqs is {self.max_num_seqs}, expected at most {MOST_SEQS}")
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}, expected 0 or more")


class Scheduler:
    """Queue, batch and KV pool of one engine. `log` is shared by all engines of a run."""

    def __init__(
        self, config: SchedulerConfig, kv: KVCache, workload: Workload, log: EventLog, speculation: Speculation
    ) -> None:
        self.config = config
        self.kv = kv
        self.workload = workload
        self.log = log
        self.speculation = speculation
        self.batch = Batch(config.max_num_seqs, config.temperature)
        self.waiting: deque[int] = deque()
        self.released: list[int] = []  # slots given up since the engine last told the executor
        self._emitted: dict[int, int] = {}  # of preempted requests, which keep the tokens they have
        self._shared: dict[int, list[int]] = {}  # slot -> cached prefix blocks it uses

    def submit(self, request: int, replica: int, now_s: float) -> bool:
        """A request reaches the server: it queues, or is rejected (False) with its reason if it can never run."""
        requests = self.log.requests
        prompt = int(self.workload.prompt_tokens[request])
        limit = min(int(self.workload.output_tokens[request]), self.config.max_model_len - prompt)
        requests.arrival_s[request] = now_s
        requests.replica[request] = replica
        requests.output_limit[request] = max(limit, 0)
        reason = ""
        if limit < 1:
            reason = f"prompt of {prompt} tokens leaves no room to answer: max_model_len {self.config.max_model_len}"
        elif prompt + limit - 1 > self.kv.capacity_tokens:  # the last token needs no slot
            reason = f"needs {prompt + limit - 1} KV slots, the pool holds {self.kv.capacity_tokens}"
        if reason:
            requests.status[request] = REJECTED
            requests.reason[request] = reason
            return False
        requests.status[request] = QUEUED
        self.waiting.append(request)
        return True

    @property
    def num_unfinished(self) -> int:
        return len(self.waiting) + len(self.batch)

    def schedule(self) -> Plan | None:
        """Decide the next step and reserve its KV slots. None if there is nothing to run."""
        if not self.num_unfinished:
            return None
        decode, lengths = self._schedule_decodes()
        plan = Plan(decode, lengths, self.speculation.speculates)
        plan.preempted = self._make_room_for_decodes(plan)
        budget = self.config.max_num_batched_tokens - len(plan.lengths) - int(plan.lengths.sum())
        budget = self._continue_prefills(plan, budget)
        if not plan.preempted:
            self._admit_waiting(plan, budget)
        plan.kv_blocks_used = self.kv.used
        return plan

    def commit(self, plan: Plan, outcome: Outcome, step: int, now_s: float) -> list[int]:
        """Book what the step produced: tokens, KV, finished requests. Returns the requests that finished."""
        finished = self._commit_decodes(plan, outcome, step, now_s)
        return finished + self._commit_prefills(plan, outcome, step, now_s)

    # scheduling

    def _schedule_decodes(self) -> tuple[DecodeBatch, Ints]:
        budget = self.config.max_num_batched_tokens
        batch = self.batch.view(self.batch.decoding[:budget], len(self.waiting))
        if not len(batch):
            return batch, np.zeros(0, np.int64)
        return batch, fit_to_budget(self.speculation.lengths(batch), budget - len(batch))

    def _make_room_for_decodes(self, plan: Plan) -> int:
        """Reserve 1 + k slots for every decoding sequence; while they do not fit, the youngest sequence goes."""
        batch, preempted = self.batch, 0
        while len(plan.decode):
            slots = plan.decode.slot
            # known + k tokens are in the cache if all k are accepted: the newest known one is computed in this step
            blocks = -(-(plan.decode.known_tokens + plan.lengths) // self.kv.block_size)
            needed = int(blocks.sum()) - int(batch.blocks[slots].sum())
            if needed <= self.kv.free:
                self.kv.take(needed)
                batch.blocks[slots] = blocks
                break
            self._preempt(batch.order[-1], plan)
            preempted += 1
        return preempted

    def _continue_prefills(self, plan: Plan, budget: int) -> int:
        for slot in list(self.batch.prefilling):
            if budget == 0:
                break
            if slot not in self.batch.prefilling:
                continue  # preempted for an older one
            budget -= self._prefill_chunk(slot, budget, plan)
        return budget

    def _prefill_chunk(self, slot: int, budget: int, plan: Plan) -> int:
        """Schedule the next chunk of a prefilling sequence; returns its tokens, 0 if it had to be preempted itself."""
        batch, kv = self.batch, self.kv
        done = int(batch.computed_tokens[slot])
        chunk = min(int(batch.known_tokens[slot]) - done, budget)
        blocks = kv.blocks_for(done + chunk)
        while (needed := blocks - int(batch.blocks[slot])) > kv.free:
            victim = batch.order[-1]
            self._preempt(victim, plan)
            plan.preempted += 1
            if victim == slot:
                return 0
        kv.take(needed)
        batch.blocks[slot] = blocks
        plan.prefill_slot.append(slot)
        plan.prefill_context.append(done)
        plan.prefill_tokens.append(chunk)
        plan.prefill_request.append(int(batch.request[slot]))
        return chunk

    def _admit_waiting(self, plan: Plan, budget: int) -> None:
        """Admit from the head of the queue while slots, budget and KV for the whole prompt are there."""
        batch, kv = self.batch, self.kv
        while self.waiting and budget > 0 and len(batch) < self.config.max_num_seqs:
            request = self.waiting[0]
            emitted = self._emitted.get(request, 0)
            known = int(self.workload.prompt_tokens[request]) + emitted
            shared = kv.match(self._prefix_ids(request), known)
            cached = len(shared) * kv.prefix_tokens
            if kv.blocks_for(known) - kv.blocks_for(cached) > kv.free - kv.idle_blocks(shared):
                break  # first come, first served: nobody overtakes
            self.waiting.popleft()
            self._emitted.pop(request, None)
            slot = batch.admit(request, known, cached, emitted, int(self.log.requests.output_limit[request]))
            kv.share(shared)
            self._shared[slot] = shared
            batch.blocks[slot] = kv.blocks_for(cached)
            self.log.requests.status[request] = RUNNING
            if emitted == 0:
                self.log.requests.cached_tokens[request] = cached
            plan.admitted.append(slot)
            budget -= self._prefill_chunk(slot, budget, plan)

    def _preempt(self, slot: int, plan: Plan) -> None:
        """Throw a running sequence out: its KV goes, its tokens stay and are recomputed; it heads the queue."""
        request = int(self.batch.request[slot])
        self._emitted[request] = int(self.batch.emitted[slot])
        self.log.requests.status[request] = QUEUED
        self.log.requests.preemptions[request] += 1
        self._release(slot)
        self.waiting.appendleft(request)
        if slot in plan.decode.slot:
            keep = plan.decode.slot != slot
            plan.decode, plan.lengths = plan.decode.keep(keep), plan.lengths[keep]
        elif slot in plan.prefill_slot:
            index = plan.prefill_slot.index(slot)
            for column in (plan.prefill_slot, plan.prefill_context, plan.prefill_tokens, plan.prefill_request):
                del column[index]

    def _release(self, slot: int) -> None:
        shared = self._shared.pop(slot, [])
        self.kv.give_back(int(self.batch.blocks[slot]) - len(shared) * (self.kv.prefix_tokens // self.kv.block_size))
        self.kv.unshare(shared)
        self.batch.remove(slot)
        self.released.append(slot)

    # commit

    def _commit_decodes(self, plan: Plan, outcome: Outcome, step: int, now_s: float) -> list[int]:
        decode, batch = plan.decode, self.batch
        if not len(decode):
            return []
        slots = decode.slot
        emitted = np.minimum(outcome.emitted, decode.remaining)
        known = decode.known_tokens + emitted
        batch.known_tokens[slots] = known
        batch.computed_tokens[slots] = known - 1
        batch.emitted[slots] = decode.emitted + emitted
        # slots of rejected drafts go back at once; the newest token's slot is taken in the next step
        blocks = -(-(known - 1) // self.kv.block_size)
        self.kv.give_back(int(batch.blocks[slots].sum()) - int(blocks.sum()))
        batch.blocks[slots] = blocks
        batch.draft_tokens[slots] = outcome.draft_tokens
        kept = np.minimum(outcome.accepted, emitted)
        self.log.emissions.append(
            decode.request,
            step,
            emitted,
            outcome.proposed,
            outcome.verified,
            kept,
            outcome.lossy_tokens(kept),
        )
        ended = (emitted >= decode.remaining) | outcome.ended
        return [self._finish(int(slot), now_s) for slot in slots[ended]] if ended.any() else []

    def _commit_prefills(self, plan: Plan, outcome: Outcome, step: int, now_s: float) -> list[int]:
        batch, finished = self.batch, []
        done: list[int] = []
        for slot, chunk in zip(plan.prefill_slot, plan.prefill_tokens, strict=True):
            batch.computed_tokens[slot] += chunk
            if plan.speculates:
                batch.draft_tokens[slot] += chunk
            if batch.computed_tokens[slot] == batch.known_tokens[slot]:
                done.append(slot)
        if not done:
            return []
        slots = np.array(done)
        batch.known_tokens[slots] += 1
        batch.emitted[slots] += 1
        self.log.emissions.append(batch.request[slots], step, np.ones(len(slots), np.int64))
        for slot in done:
            batch.start_decoding(slot)
            self._publish_prefix(slot)
            if batch.emitted[slot] >= batch.output_limit[slot] or slot in outcome.prefill_ended:
                finished.append(self._finish(slot, now_s))
        return finished

    def _finish(self, slot: int, now_s: float) -> int:
        request = int(self.batch.request[slot])
        requests = self.log.requests
        requests.status[request] = FINISHED
        requests.finish_s[request] = now_s
        clipped = requests.output_limit[request] < self.workload.output_tokens[request]
        requests.reason[request] = "length" if clipped else "stop"
        self._release(slot)
        return request

    # prefix caching

    def _prefix_ids(self, request: int) -> Ints | list[int]:
        blocks = self.workload.prefix_blocks
        return blocks.of(request).tolist() if blocks and self.kv.prefix_tokens else []

    def _publish_prefix(self, slot: int) -> None:
        """Make the full prompt blocks that this sequence has just computed available to later ones."""
        if not self.kv.prefix_tokens:
            return
        request, shared = int(self.batch.request[slot]), self._shared[slot]
        full = int(self.workload.prompt_tokens[request]) // self.kv.prefix_tokens
        for block in list(self._prefix_ids(request))[len(shared) : full]:
            if not self.kv.publish(int(block)):
                break  # an equal one was cached meanwhile: this sequence keeps its own copy
            shared.append(int(block))
