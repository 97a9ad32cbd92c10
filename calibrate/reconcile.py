"""Hold recorded windows against live runs: the same prompts, the same k, and the mean acceptance length of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from calibrate.bank import Trajectory
from calibrate.lengths import CONFIDENCE, compare_lengths, first_difference, greedy_steps
from calibrate.loop import LiveText, SpeculativeLoop
from calibrate.pairs import Pair
from calibrate.prompts import Prompt, render
from calibrate.record import Settings
from traces.errors import InputError

NEAR_TIE = {torch.float32: 1e-3}
NEAR_TIE_HALF = 0.25
"""Distance of the two highest logits below which rounding may decide, for float32 and for 16 bits."""


@dataclass(frozen=True)
class Reconciliation:
    """A live run against what the windows predict for it.

    k, prompts                draft tokens a step, texts compared
    live_length               mean tokens a step of the live run: emitted / steps, the ends of texts included
    window_length             the same from the windows
    bound                     |live_length - window_length| may be this much; 0 when greedy, where steps must be equal
    near_ties                 greedy texts that part from the windows at a near-tie, from there on not compared
    live_steps                steps of the live run
    plain_s, speculative_s    measured decoding seconds a token, B = 1, without and with drafting
    problem                   what does not agree, in one line; None if all does
    """

    k: int
    prompts: int
    live_length: float
    window_length: float
    bound: float
    near_ties: int
    live_steps: int
    plain_s: float
    speculative_s: float
    problem: str | None

    @property
    def speedup(self) -> float:
        """Of decoding at B = 1, prefill left out."""
        return self.plain_s / self.speculative_s

    def check(self) -> None:
        """Raise InputError if windows and live run do not agree."""
        if self.problem:
            raise InputError(self.problem)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, the speed-up among them."""
        return dataclasses.asdict(self) | {"speedup": self.speedup}


def reconcile(
    pair: Pair,
    prompts: Sequence[Prompt],
    trajectories: Sequence[Trajectory],
    settings: Settings,
    *,
    k: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Reconciliation:
    """Decode the prompts of `trajectories` live, plainly and with k drafts a step.

    Greedy: texts and emitted tokens must be equal step by step, near-ties apart. Sampled: the texts differ, and the
    mean lengths must agree within a `CONFIDENCE` interval over prompts. `problem` says what does not. Raises InputError
    if k is deeper than the windows, or if there is no text with windows.
    """
    chosen = [trajectory for trajectory in trajectories if len(trajectory.accept)]
    if not chosen:
        raise InputError("reconciliation: no text of two tokens or more")
    if not 1 <= k <= settings.depth:
        raise InputError(f"reconciliation: k = {k}; the windows hold 1 to {settings.depth} draft tokens")
    rendered = {trajectory.index: render(prompts[trajectory.index], pair.tokenizer) for trajectory in chosen}
    room = max(map(len, rendered.values())) + settings.output_tokens + k + 1
    loop = SpeculativeLoop(pair, settings.sampling, max_model_len=room)

    def run(index: int, k: int, *, gaps: bool = False) -> LiveText:
        rng = np.random.default_rng([settings.seed, index, k])
        return loop.run(rendered[index], k=k, output_tokens=settings.output_tokens, rng=rng, gaps=gaps)

    run(chosen[0].index, k)  # warm-up
    live, plain = [], []
    for number, trajectory in enumerate(chosen, start=1):  # in turn, so that a slow minute hits both
        plain.append(run(trajectory.index, 0))
        live.append(run(trajectory.index, k))
        progress(number, len(chosen))
    near_ties, bound = 0, 0.0
    live_length, window_length, half_width = compare_lengths(chosen, live, k)
    if settings.sampling.greedy:
        near_ties, problem = _step_by_step(chosen, live, pair, k, lambda index: run(index, k, gaps=True))
    else:
        bound, problem = half_width, None
        if abs(live_length - window_length) > bound:
            problem = (
                f"acceptance length at k = {k}: {live_length:.3f} live, {window_length:.3f} from the windows; "
                f"they may differ by {bound:.3f} ({CONFIDENCE:.1%}, {len(chosen)} prompts)"
            )
    return Reconciliation(
        k=k,
        prompts=len(chosen),
        live_length=live_length,
        window_length=window_length,
        bound=bound,
        near_ties=near_ties,
        live_steps=sum(len(text.steps) for text in live),
        plain_s=_seconds_per_token(plain),
        speculative_s=_seconds_per_token(live),
        problem=problem,
    )


def _step_by_step(
    trajectories: Sequence[Trajectory],
    live: Sequence[LiveText],
    pair: Pair,
    k: int,
    with_gaps: Callable[[int], LiveText],
) -> tuple[int, str | None]:
    """Texts that part at a near-tie, and the first that parts without one, in words."""
    tolerance = NEAR_TIE.get(pair.dtype, NEAR_TIE_HALF)
    near_ties = 0
    for trajectory, text in zip(trajectories, live, strict=True):
        expected, found = greedy_steps(trajectory.accept, k), [step.emitted for step in text.steps]
        step = first_difference(trajectory.tokens.tolist(), expected, text.tokens, found)
        if step is None:
            continue
        # the first token comes before the first step, whose gap does not cover it
        gap = min(s.gap for s in with_gaps(trajectory.index).steps[max(step - 1, 0) : step + 1])
        if gap > tolerance:
            return near_ties, (
                f"greedy text of prompt {trajectory.index}, step {step}: {expected[step : step + 1]} tokens from the "
                f"windows, {found[step : step + 1]} live, and no near-tie (the logits are {gap:.4f} apart)"
            )
        near_ties += 1
    return near_ties, None


def _seconds_per_token(texts: Sequence[LiveText]) -> float:
    decoded = sum(text.decoded for text in texts)
    return sum(text.decode_s for text in texts) / max(decoded, 1)
