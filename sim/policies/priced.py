"""Priced speculation, our own [O]: every draft pass and every verified token is bought if it is worth its time.

Before drafting, per sequence and depth d, the chance that a token is accepted if all before it were, from what the
sequence was like lately; the survival of a token is the product of the chances up to it:

    sigmoid(w . [1, ln d, recent acceptance, ln KLD, ln draft entropy, entropy of the token before])

Of all depths D and survivals s, the pair that maximises the expected tokens per second of the cost model:

    (B + sum of the survivals >= s up to depth D) / (draft seconds of D + verification seconds of their number)

That maximum, times what such plans have yielded so far, is the rate at which time is paid for. The price of verifying
one more token is rate * its seconds. While drafting, the entropy of each draft token sharpens its survival:

    stop     draft on while  sum_i max(survival of the next token - price, 0) >= rate * seconds of that pass
    trim     verify a token if its survival >= price

Hooks: lengths, stop, trim, observe. Lossless at any temperature: whether a token is verified depends on the entropy of
its position and on the tokens before it, never on the token itself, and the price is fixed before drafting. (A rule
that looks at the token's own probability, or fills a budget with what came out, changes the law when sampling.)

From others: DSDE (2509.01083) the KLD history, and that stragglers cost the whole batch; AdaEDL (2410.18351) the draft
entropy as a bound on acceptance; TurboSpec (2406.14066) tokens per second of a cost model as the objective; TETRIS
(2502.15197) and DSpark (2607.05147) survival over the batch, calibrated online. Ours: the price, which makes the
decisions one and lets each be taken when what it depends on is known. Constants are choices [O].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome, Signals
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.recent import Recent
from sim.policies.survival import Mask, OnlineLogistic, chance, verdicts
from traces.errors import InputError

START = (0.8, 0.0, 0.3, -0.2, -0.2, -0.2, -0.5)
"""Weights before the first verdict: a cautious guess of the signs; the last is for the entropy of the token itself."""
THRESHOLDS = np.array([0.0, *np.geomspace(0.01, 0.9, 15)])
"""Survivals s that a plan may ask for."""
REPLAN = 16
"""Steps for which a plan holds while the batch is about as large: it is about the batch, which changes slowly."""
YOUNG = 64
"""Plans before which one holds for less, in proportion, and steps before which each is learned from."""
SAME_SIZE = 1 / 8
"""What the batch may gain or lose, relatively, while a plan holds."""
MOST_VERDICTS = 256
"""Verdicts that are learned from in one step."""
LEARN = 2
"""Of so many steps one is learned from: weights that remember thousands of verdicts change slowly."""
PROBE = 32
"""Steps without a draft after which some sequences draft one token, to learn whether it pays again."""
PROBED = 8
"""Share of the batch that drafts then: one in so many."""
LIFT_FADE = 0.98
"""Weight of a step's yield after one more step."""
FLOOR = 0.02
"""Nats that are added to an entropy before its logarithm is taken."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice before drafting: depth, the survival from which verification pays, tokens per second.

    promised is the rate by the estimates alone, rate the same times what such plans have yielded.
    """

    depth: int
    price: float
    rate: float
    promised: float


@dataclass(slots=True)
class Draft:
    """The draft under way, float[B] each.

    before, at   what depth 0 and the sequence's state contribute to the logit of either model
    state        features of the sequence, float[B, 3]; the last is the ln entropy that it had lately
    survival     of the newest draft token, surprise: its ln entropy, less the usual one
    worth        leading tokens that are worth their verification
    """

    before: Floats
    at: Floats
    state: Floats
    survival: Floats
    surprise: Floats
    worth: Ints

    def keep(self, rows: Mask) -> Draft:
        """The sequences where `rows` is true."""
        return Draft(*(getattr(self, name)[rows] for name in self.__slots__))


@policies.register("priced")
class Priced(LengthPolicy):
    """Buys draft passes and verified tokens at the going rate of tokens per second. k: the deepest draft."""

    name = "priced"
    source = "our own [O]; signals of DSDE and AdaEDL, objective of TurboSpec, batch-wide survival of TETRIS"

    def __init__(self, context: PolicyContext, k: int = 16) -> None:
        if k < 0:
            raise InputError(f"policy priced: k is {k}, expected 0 or more")
        self.max_length = min(k, context.max_draft_tokens)
        self.before = OnlineLogistic(START[:-1])  # knows the token before
        self.at = OnlineLogistic(START)  # knows the entropy of the token itself
        self.recent = Recent(context.num_slots, context.max_draft_tokens)
        self.plan = Plan(0, 0.0, 0.0, 0.0)
        self.planned_for = (0, 0)  # sequences, steps that the plan still holds
        self.yielded = self.expected = 1.0  # tokens of recent steps, and what their plans promised for their time
        self.plans = self.steps = self.steps_without_draft = 0
        self.draft: Draft
        self.slots: Ints
        self._step_seconds_many = context.step_seconds_many
        self._verify_seconds_many = context.verify_seconds_many
        self._pass_s = np.zeros(self.max_length)
        self._log_depth = np.log(np.arange(1, self.max_length + 1))

    def begin(self, slots: Ints) -> None:
        self.recent.begin(slots)

    # before drafting

    def lengths(self, batch: DecodeBatch) -> Ints:
        state = self.recent.features(batch.slot)
        before, at = _base(self.before, state), _base(self.at, state)
        num_seqs = len(batch)
        self.slots = batch.slot
        self.draft = Draft(before, at, state, np.ones(num_seqs), np.zeros(num_seqs), np.zeros(num_seqs, np.int64))
        size, left = self.planned_for
        if left > 0 and abs(size - num_seqs) <= SAME_SIZE * size:
            self.planned_for = size, left - 1
        else:
            survival = np.cumprod(chance(before + self.before.weights[1] * self._log_depth[:, None]), axis=0)
            inside = np.arange(self.max_length)[:, None] < batch.remaining - 1
            self.plan = self._best(batch, np.where(inside, survival, 0.0))
            self.planned_for = num_seqs, min(REPLAN * self.plans // YOUNG, REPLAN - 1)
            self.plans += 1
        if self.plan.depth == 0:
            return self._probe(batch)
        self.steps_without_draft = 0
        return np.full(num_seqs, min(self.plan.depth + self.plan.depth // 2 + 1, self.max_length), np.int64)

    def _best(self, batch: DecodeBatch, survival: Floats) -> Plan:
        """The depth and survival with the highest rate; of equal ones the shallowest, then the lowest.

        survival: float[D, B].
        """
        depth, num_seqs = survival.shape
        uniform = np.broadcast_to(np.arange(depth + 1)[:, None], (depth + 1, num_seqs))
        verify_s = self._verify_seconds_many(batch, uniform)
        plain = num_seqs / float(verify_s[0])
        if depth == 0:
            return Plan(0, 1.0, plain, plain)
        draft_s = self._step_seconds_many(batch, uniform) - verify_s
        self._pass_s = draft_s[1:] - draft_s[:-1]
        tokens, gains = _admitted(survival)
        offered = num_seqs * np.arange(depth + 1)
        rate = (num_seqs + gains) / (draft_s[1:, None] + np.interp(tokens, offered, verify_s))
        best = int(rate.argmax())
        if rate.flat[best] <= plain:
            return Plan(0, 1.0, plain, plain)
        promised = float(rate.flat[best])
        going = promised * min(max(self.yielded / self.expected, 0.5), 2.0)
        # the slope of the cost over one token per sequence around what the plan verifies: kernels have steps
        chosen = int(tokens.flat[best])
        ends = max(chosen - num_seqs / 2, 0.0), min(chosen + num_seqs / 2, num_seqs * depth)
        low, high = np.interp(ends, offered, verify_s)
        price = going * float(high - low) / (ends[1] - ends[0])
        return Plan(best // len(THRESHOLDS) + 1, price, going, promised)

    def _probe(self, batch: DecodeBatch) -> Ints:
        """Nothing, but every so often one token for one sequence in PROBED, another one each time."""
        lengths = np.zeros(len(batch), np.int64)
        self.steps_without_draft += 1
        if self.steps_without_draft % PROBE == 0 and self.max_length:
            turn = self.steps_without_draft // PROBE
            lengths[(np.arange(len(batch)) + turn) % min(PROBED, len(batch)) == 0] = 1
        return lengths

    # while drafting

    def _current(self, batch: DecodeBatch) -> Draft:
        """The draft of these sequences: some of those that lengths were asked for may have been preempted."""
        if len(batch) != len(self.slots):
            self.draft = self.draft.keep(np.isin(self.slots, batch.slot))
            self.slots = batch.slot
        return self.draft

    def stop(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        draft, plan, at, before = self._current(batch), self.plan, self.at.weights, self.before.weights
        surprise = _log(signals.draft_entropy[:, depth - 1]) - draft.state[:, 2]
        deepest = depth >= self.max_length
        logits = np.empty((2, len(batch)))  # of this token, and of the one after it
        logits[0] = draft.at + (at[1] * self._log_depth[depth - 1] + at[5] * draft.surprise + at[6] * surprise)
        logits[1] = draft.before + (before[1] * self._log_depth[depth - deepest] + before[5] * surprise)
        sharpened, following = chance(logits)
        draft.survival = draft.survival * sharpened
        draft.surprise = surprise
        pays = draft.survival >= plan.price
        draft.worth[pays] = depth
        if deepest or plan.depth == 0:
            return np.ones(len(batch), np.bool_)
        pays &= batch.remaining > depth + 1
        gain = np.maximum(draft.survival * following - plan.price, 0.0) @ pays
        return ~pays if gain >= plan.rate * self._pass_s[depth] else np.ones(len(batch), np.bool_)

    def trim(self, batch: DecodeBatch, proposed: Ints, signals: Signals) -> Ints:
        if self.plan.depth == 0:  # a probe: the verdict is what it is for
            return proposed
        return np.minimum(self._current(batch).worth, proposed)

    # after verification

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.proposed.max())
        if depth == 0:
            return
        self.steps += 1
        if self.plan.depth:
            time = outcome.time
            self.yielded = LIFT_FADE * self.yielded + float(outcome.emitted.sum())
            promised = self.plan.promised * (time.draft_s + time.verify_s + time.host_s)
            self.expected = LIFT_FADE * self.expected + promised
        log_entropy = _log(outcome.signals.draft_entropy[:, :depth])
        if self.steps % LEARN == 0 or self.steps < YOUNG:
            self._learn(batch, *verdicts(outcome, depth), log_entropy)
        self.recent.observe(batch.slot, outcome, log_entropy)

    def _learn(self, batch: DecodeBatch, judged: Mask, accepted: Mask, log_entropy: Floats) -> None:
        """Re-fit the two models by turns, on the state that the tokens were drafted from."""
        place = judged.ravel().nonzero()[0]
        if len(place) > MOST_VERDICTS:
            every = -(-len(place) // MOST_VERDICTS)
            place = place[self.steps % every :: every]
        row, position = np.divmod(place, judged.shape[1])
        state = self._current(batch).state[row]
        usual = state[:, 2]
        features = np.empty((len(place), len(START)))
        features[:, 0] = 1.0
        features[:, 1] = self._log_depth[position]
        features[:, 2:5] = state
        features[:, 5] = np.where(position > 0, log_entropy.take(place - 1, mode="wrap") - usual, 0.0)
        features[:, 6] = log_entropy.take(place) - usual
        verdict = accepted.take(place)
        if self.steps // LEARN % 2:
            self.at.update(features, verdict)
        else:
            self.before.update(features[:, :-1], verdict)


def _admitted(survival: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Slots up to depth D whose survival is at least s, and the sum of their survivals: [D, s] each.

    survival: float[D, B].
    """
    depth, levels, values = len(survival), len(THRESHOLDS), survival.ravel()
    met = THRESHOLDS.searchsorted(values, side="right") - 1  # the highest s that is met
    cell = (met.reshape(survival.shape) + levels * np.arange(depth)[:, None]).ravel()
    count = np.bincount(cell, minlength=depth * levels).reshape(depth, levels)
    total = np.bincount(cell, values, depth * levels).reshape(depth, levels)
    tokens = count[:, ::-1].cumsum(axis=1)[:, ::-1].cumsum(axis=0)
    return tokens, total[:, ::-1].cumsum(axis=1)[:, ::-1].cumsum(axis=0)


def _base(model: OnlineLogistic, state: Floats) -> Floats:
    """What bias and state contribute to the logit, float[B]."""
    return np.asarray(model.weights[0] + state @ model.weights[2:5])


def _log(entropy: NDArray[np.floating]) -> Floats:
    """ln of an entropy in nats; an infinite or undefined one counts as 10 nats."""
    return np.asarray(np.log(np.maximum(np.fmin(entropy, 10.0), 0.0) + FLOOR), np.float64)
