"""Acceptance rules: which draft tokens stand although the target's exact test rejects them.

The exact test (`lossless`) accepts a token that is argmax p (greedy), or with chance min(1, p / q) (sampling). A lossy
rule adds to it: a token stands if it passes the exact test OR the rule; what follows the first that does neither is
thrown away, and the target's own token takes its place. The text is then no longer the target's.

A rule works on arrays over the batch, by `Signals` alone, so that the simulated and a live executor share it. `oracle`
knows the exact runs only, whatever the rule.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sim.control.batch import DecodeBatch, Floats
from sim.control.executor import Mask, Outcome, Signals, Values
from sim.policies.survival import verdicts
from traces.errors import InputError
from traces.registry import Registry

LARGEST_DISTANCE = float(np.sqrt(np.log(2)))
"""The Jensen-Shannon distance of distributions that have no token in common; an undefined one counts as this."""


class AcceptanceRule:
    """What a lossy rule lets stand. Options are the keyword arguments of `__init__`, given as `NAME:key=value,...`."""

    name: ClassVar[str] = ""
    source: ClassVar[str] = ""
    """Where the rule comes from, with its confidence mark: [C], [P], [A] or [O]; see LengthPolicy."""
    lossless: ClassVar[bool] = False
    note: ClassVar[str] = ""
    """What a reader of its results must know besides that it is lossy."""
    needs: tuple[str, ...] = ()
    """The signals that it looks at."""

    def passes(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        """Which of the first `depth` draft tokens may stand though they fail the exact test: bool[B, depth]."""
        raise NotImplementedError

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        """After verification: learn from the verdicts; never asked about an empty batch."""


acceptance_rules: Registry[type[AcceptanceRule]] = Registry("acceptance rule")


@acceptance_rules.register("lossless")
class Lossless(AcceptanceRule):
    """The exact test alone: the text is the target's (arXiv 2211.17192)."""

    name = "lossless"
    source = "arXiv 2211.17192 [P]"
    lossless = True


@acceptance_rules.register("typical")
class Typical(AcceptanceRule):
    """A token stands if p(token) > min(threshold, alpha exp(-H(p))) (Medusa, arXiv 2401.10774).

    Names and defaults of the options are those of vLLM's typical acceptance sampler (posterior_threshold .09,
    posterior_alpha .3). A greedy target's own token always passes: exp(-H) is never above the largest p.
    """

    name = "typical"
    source = "Medusa arXiv 2401.10774 [P]"
    needs = ("target_prob", "target_entropy")

    def __init__(self, threshold: float = 0.09, alpha: float = 0.3) -> None:
        if not (0 <= threshold <= 1 and 0 <= alpha < float("inf")):
            raise InputError(
                f"acceptance rule typical: expected threshold of 0 to 1 and alpha >= 0, got threshold={threshold}, "
                f"alpha={alpha}"
            )
        self.threshold, self.alpha = threshold, alpha

    def passes(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        least = np.minimum(self.threshold, self.alpha * np.exp(-signals.target_entropy[:, :depth]))
        return np.asarray(signals.target_prob[:, :depth] > least)


@acceptance_rules.register("fuzzy")
class Fuzzy(AcceptanceRule):
    """A token stands where target and draft differ by at most a threshold, whichever token it is (arXiv 2502.20704).

    jsd    largest Jensen-Shannon distance, 0 to .83 (default .3 [O]); the paper's divergence is its square
    kld    instead of it: largest KL divergence, nats
    """

    name = "fuzzy"
    source = "arXiv 2502.20704 [P]; default threshold [O]"

    def __init__(self, jsd: float | None = None, kld: float | None = None) -> None:
        if jsd is not None and kld is not None:
            raise InputError("acceptance rule fuzzy: give jsd or kld, not both")
        self.needs = ("jsd",) if kld is None else ("kld",)
        self.threshold = kld if kld is not None else 0.3 if jsd is None else jsd
        if not self.threshold >= 0:
            raise InputError(f"acceptance rule fuzzy: {self.needs[0]} is {self.threshold}, expected 0 or more")

    def passes(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        divergence = signals.jsd if self.needs == ("jsd",) else signals.kld
        return np.asarray(divergence[:, :depth] <= self.threshold)


@acceptance_rules.register("adasd")
class AdaSDRule(AcceptanceRule):
    """A token stands if JSD(p, q) <= tau, half way between tokens that pass the exact test and tokens that fail it.

    RECONSTRUCTION [O] of AdaSD (arXiv 2512.11280): that it adapts a threshold on the Jensen-Shannon distance, without
    hyperparameters, is confirmed [A]; its update formulas are not public. Ours: tau is the midpoint of the running
    means of the distance over judged tokens of the two kinds, kept per engine; until both were seen nothing passes.
    """

    name = "adasd"
    source = "AdaSD arXiv 2512.11280 [A], RECONSTRUCTION [O]"
    note = "acceptance rule adasd is our reconstruction of AdaSD (arXiv 2512.11280): its update formulas are not public"
    needs = ("jsd",)

    def __init__(self) -> None:
        self.threshold = Midpoint()

    def passes(self, batch: DecodeBatch, depth: int, signals: Signals) -> Mask:
        least = -np.inf if self.threshold.value is None else self.threshold.value
        return np.asarray(signals.jsd[:, :depth] <= least)

    def observe(self, batch: DecodeBatch, outcome: Outcome) -> None:
        depth = int(outcome.verified.max())
        if depth:
            judged, accepted = verdicts(outcome, depth)
            exact = accepted if outcome.by_rule is None else accepted & ~outcome.by_rule[:, :depth]
            self.threshold.update(np.fmin(outcome.signals.jsd[:, :depth], LARGEST_DISTANCE), exact, judged & ~exact)


class Midpoint:
    """A threshold without constants: half way between the running means of a value over two kinds of tokens [O]."""

    def __init__(self) -> None:
        self.count = np.zeros(2)
        self.mean = np.zeros(2)
        self.value: float | None = None
        """None until both kinds were seen."""

    def update(self, values: Values | Floats, one: Mask, other: Mask) -> None:
        """Add the values where a mask is true to the mean of its kind (Welford's update, a batch at a time)."""
        for kind, mask in enumerate((one, other)):
            if count := int(mask.sum()):
                self.count[kind] += count
                total = float(values[mask].sum(dtype=np.float64))
                self.mean[kind] += (total - count * self.mean[kind]) / self.count[kind]
        if self.count.all():
            self.value = float(self.mean.mean())
