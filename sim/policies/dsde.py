"""DSDE (arXiv 2509.01083): draft length per sequence from how stable the KL divergence of target and draft has been.

The rule, for each sequence, after each verification:

    WVIR = Var_w(short window) / Var_w(long window)      of the per-token KLD(target || draft), newest weighted most
    SF   = exp(2 m) - 1                                  m = mean KLD of the step's proposals
    k    = SL_max - WVIR * SF * (SL_max - SL_min)        and SL_min if WVIR * SF > 1

SL_min and SL_max are calibrated once per sequence, while it warms up; the cap over the batch is the mean of the k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Floats, Ints
from sim.control.executor import Outcome
from sim.policies.base import LengthPolicy, PolicyContext, policies
from sim.policies.history import DecayedVariance, History
from traces.errors import InputError

Mask = NDArray[np.bool_]

STEADY_VARIANCE = 1e-6
"""A long-window variance below this counts as constant: WVIR is STEADY_WVIR then [C]."""
STEADY_WVIR = 20.0
LARGEST_EXPONENT = 709.78
"""exp overflows above: the original raises there."""
LARGEST_KLD = 1e4
"""Nats. An infinite or undefined divergence (a token that the draft thinks impossible) counts as this [O]."""


@dataclass(frozen=True)
class Preset:
    """The constants in which paper and published code differ. A window maps 0..warm_up values to how many count."""

    warm_up: int
    decay: float
    short_window: Ints
    long_window: Ints
    initial: int
    min_spec: int
    max_spec: int


def paper() -> Preset:
    """Windows of 10 and 30 tokens, decay 0.85, SL_min 2 [P]; warm-up until 30 tokens are known, with k = 5 [O]."""
    count = np.arange(31)
    return Preset(30, 0.85, np.minimum(count, 10), count, initial=5, min_spec=2, max_spec=20)


def code(activation_tokens: int = 100) -> Preset:
    """The official repository's KLScheduler: the whole history and its newest third, decay 0.9 [C]."""
    count = np.arange(activation_tokens + 1)
    return Preset(activation_tokens, 0.9, np.maximum(1, count // 3), count, initial=5, min_spec=6, max_spec=20)


def wvir(short: Floats, long: Floats, count: Ints) -> Floats:
    """WVIR, float[B]: 0 with fewer than two values, STEADY_WVIR if the long window is constant."""
    steady = long < STEADY_VARIANCE
    ratio = np.where(steady, STEADY_WVIR, short / np.where(steady, 1.0, long))
    return np.where(count < 2, 0.0, ratio)


def scaled_length(wvir: Floats, mean_kld: Floats, k_min: Floats, k_max: Floats) -> Floats:
    """The DSDE rule, not yet rounded: float[B]. A scale factor too large for a float gives k_min, whatever WVIR [O]."""
    exponent = 2.0 * mean_kld
    penalty = wvir * np.expm1(np.minimum(exponent, 300.0))  # beyond 300 it is far above 1 in any case
    calm = np.maximum(1.0 - penalty, 0.0) * (exponent <= LARGEST_EXPONENT)
    return k_min + calm * (k_max - k_min)


@policies.register("dsde")
class DSDE(LengthPolicy):
    """Per-sequence k from the variance of the KL divergence, capped at the batch's mean (arXiv 2509.01083).

    preset             paper (default) or code, the official repository's constants and start-up rules
    initial            k before the first verification
    min_spec, max_spec bounds of k; the paper preset uses min_spec as SL_min
    activation_tokens  code preset: length of history and warm-up (the class default of the original is 30)

    SL_max is calibrated once per sequence: one that accepts nothing while it warms up keeps SL_min for its life. After
    a step without a draft a sequence keeps its last mean KLD [O]; the original takes 0 there, that is SL_max. A
    preempted sequence warms up again.
    """

    name = "dsde"
    source = "arXiv 2509.01083; paper [P], code [C], guards [O]"
    default_cap = "mean"

    def __init__(
        self,
        context: PolicyContext,
        preset: Literal["paper", "code"] = "paper",
        initial: int | None = None,
        min_spec: int | None = None,
        max_spec: int | None = None,
        activation_tokens: int | None = None,
    ) -> None:
        if activation_tokens is not None and (preset == "paper" or activation_tokens < 1):
            raise InputError(f"policy dsde: activation_tokens={activation_tokens} is for preset=code, and at least 1")
        constants = paper() if preset == "paper" else code(activation_tokens or 100)
        self.preset = preset
        self.initial = constants.initial if initial is None else initial
        self.min_spec = constants.min_spec if min_spec is None else min_spec
        self.max_spec = constants.max_spec if max_spec is None else max_spec
        if not 0 <= self.min_spec <= self.max_spec or self.initial < 0:
            raise InputError(
                f"policy dsde: expected 0 <= min_spec <= max_spec and initial >= 0, got min_spec={self.min_spec}, "
                f"max_spec={self.max_spec}, initial={self.initial}"
            )
        self.max_length = max(self.max_spec, self.initial)
        self.warm_up = constants.warm_up
        self.applies_cap = preset == "code"  # the original caps its own state, and only sequences past their warm-up
        self.cap = context.cap

        slots = context.num_slots
        self.history = History(slots, self.warm_up)
        self.variances = DecayedVariance(self.warm_up, constants.decay, constants.short_window, constants.long_window)
        self.next_length = np.full(slots, self.initial, np.int64)
        self.scheduled = np.full(slots, self.initial, np.int64)  # code preset: the scheduler's own k, not yet clipped
        self.mean_kld = np.zeros(slots)
        self.calibrated = np.zeros(slots, np.bool_)
        self.k_min = np.zeros(slots)
        self.k_max = np.zeros(slots)
        self.most_accepted = np.zeros(slots, np.int64)  # the rest of the calibration samples:
        self.kld_sum = np.zeros(slots)
        self.kld_max = np.zeros(slots)
        self.kld_count = np.zeros(slots, np.int64)

    def begin(self, slots: Ints) -> None:
        self.history.clear(slots)
        self.next_length[slots] = self.scheduled[slots] = self.initial
        self.calibrated[slots] = False
        for state in (self.mean_kld, self.most_accepted, self.kld_sum, self.kld_max, self.kld_count):
            state[slots] = 0

    def lengths(self, batch: DecodeBatch) -> Ints:
        return self.next_length[batch.slot]

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        slots, proposed = batch.slot, outcome.proposed
        depth = int(proposed.max())
        drafted = np.arange(depth) < proposed[:, None]
        kld = np.where(drafted, np.fmin(outcome.signals.kld[:, :depth], LARGEST_KLD), 0.0).astype(np.float64)
        values = self.history.append(slots, kld, proposed)
        mean = kld.sum(axis=1) / np.maximum(proposed, 1)
        self.mean_kld[slots] = mean if proposed.all() else np.where(proposed > 0, mean, self.mean_kld[slots])
        observe = self._observe_paper if self.preset == "paper" else self._observe_code
        observe(batch, outcome, kld, values)

    def _observe_paper(self, batch: DecodeBatch, outcome: Outcome, kld: Floats, values: Floats) -> None:
        slots = batch.slot
        warming = (~self.calibrated[slots]).nonzero()[0]
        if len(warming):
            rows = slots[warming]
            self._sample(rows, outcome.accepted[warming], kld[warming], outcome.proposed[warming])
            self._calibrate_paper(rows[self.history.count[rows] == self.warm_up])
            calibrated = self.calibrated[slots]
            slots, values = slots[calibrated], values[calibrated]
        length = scaled_length(self._wvir(slots, values), self.mean_kld[slots], self.k_min[slots], self.k_max[slots])
        self.next_length[slots] = np.minimum(np.maximum(np.rint(length), 1), self.max_spec)

    def _calibrate_paper(self, slots: Ints) -> None:
        """SL_max = A_max (1 + mean KLD / max KLD), within [SL_min, max_spec]; SL_min is a constant."""
        spread = self.kld_sum[slots] / np.maximum(self.kld_count[slots], 1) / (self.kld_max[slots] + 1e-10)
        self.k_min[slots] = self.min_spec
        self.k_max[slots] = np.clip(self.most_accepted[slots] * (1 + spread), self.min_spec, self.max_spec)
        self.calibrated[slots] = True

    def _observe_code(self, batch: DecodeBatch, outcome: Outcome, kld: Floats, values: Floats) -> None:
        slots, proposed, accepted = batch.slot, outcome.proposed, outcome.accepted
        known = self.calibrated[slots].copy()
        full = self.history.count[slots] == self.warm_up
        warming = ~known & ~full
        if warming.any():
            rows, hits = slots[warming], accepted[warming]
            self._sample(rows, hits, kld[warming], proposed[warming])
            k = self.scheduled[rows]
            doubled = np.minimum(2 * k, self.max_spec)
            self.scheduled[rows] = np.where(hits >= k, doubled, np.maximum(k, self.min_spec))
        if not warming.all():
            self._calibrate_code(slots[~known & full])
            self._schedule_code(batch, values, ~warming, counted=known & (proposed > 0))
        drafting = proposed > 0
        self.next_length[slots[drafting]] = np.clip(self.scheduled[slots[drafting]], self.min_spec, self.max_spec)

    def _schedule_code(self, batch: DecodeBatch, values: Floats, rows: Mask, counted: Mask) -> None:
        """The rule for every calibrated sequence, then the cap over those that were calibrated before this step."""
        slots = batch.slot[rows]
        temperature = np.broadcast_to(batch.temperature, len(batch))[rows]
        mean = self.mean_kld[slots] / np.where(temperature >= 1e-8, temperature + 1e-8, 1.0)
        k_min = self.k_min[slots]
        length = np.ceil(scaled_length(self._wvir(slots, values[rows]), mean, k_min, self.k_max[slots]))
        self.scheduled[slots] = np.maximum(k_min, length)
        if self.cap is not None and self.scheduled[batch.slot[counted]].any():
            limit = self.cap(batch.keep(counted), self.scheduled[batch.slot[counted]])
            self.scheduled[slots] = np.minimum(self.scheduled[slots], limit)

    def _calibrate_code(self, slots: Ints) -> None:
        """k_max = A_max (1 + mean / (2 max)), half to even; k_min = a tenth of it, rounded up; within the bounds."""
        largest = self.kld_max[slots]
        spread = self.kld_sum[slots] / np.maximum(self.kld_count[slots], 1) / np.where(largest > 0, largest, 1.0)
        k_max = np.clip(np.rint(self.most_accepted[slots] * (1 + 0.5 * spread)), self.min_spec, self.max_spec)
        k_min = np.clip(np.ceil(0.1 * k_max), self.min_spec, k_max)
        sampled = self.kld_count[slots] > 0
        self.k_max[slots] = np.where(sampled, k_max, self.max_spec)
        self.k_min[slots] = np.where(sampled, k_min, self.min_spec)
        self.calibrated[slots] = True

    def _sample(self, slots: Ints, accepted: Ints, kld: Floats, proposed: Ints) -> None:
        self.most_accepted[slots] = np.maximum(self.most_accepted[slots], accepted)
        self.kld_sum[slots] += kld.sum(axis=1)
        self.kld_max[slots] = np.maximum(self.kld_max[slots], kld.max(axis=1, initial=0.0))
        self.kld_count[slots] += proposed

    def _wvir(self, slots: Ints, values: Floats) -> Floats:
        count = self.history.count[slots]
        short, long = self.variances(values, count)
        return wvir(short, long, count)
