"""The training loop: the draft learns the target's law along its own chains, and stops when held-out text says so."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from calibrate.distillation.text import Text
from calibrate.distillation.unroll import Batch, batch, unroll
from calibrate.eagle import EagleDraft

CHECKPOINT = "training.pt"
ROWS = 8
"""Texts in a step."""
DEPTHS = 2
"""Passes of a chain that are trained: more cost more, and acceptance stays level with depth from two on."""
LATER = 0.8
"""Weight of a depth in the loss against the depth before."""
WARM_UP = 30
DECAY_SHARE = 0.7
EVALUATIONS = 12
PATIENCE = 3
"""Evaluations without a better held-out loss after which training ends, once half of its steps are made: while the
learning rate is high the loss may stand above where it began."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Schedule:
    """steps of `ROWS` texts; the learning rate of AdamW rises for 30 of them and falls to 0 over the last 70 %."""

    steps: int
    learning_rate: float = 1e-3
    seed: int = 0

    def rate(self, step: int) -> float:
        """Of the step, counted from 0."""
        rising = (step + 1) / WARM_UP
        falling = (self.steps - step) / (DECAY_SHARE * self.steps)
        return self.learning_rate * min(1.0, rising, falling)


def loss(draft: EagleDraft, given: Batch, depths: int = DEPTHS) -> torch.Tensor:
    """KL(target || draft) per token in nats, both over the draft vocabulary; a weighted mean over depths."""
    law = torch.empty(0)
    where = torch.zeros(given.tokens.shape, dtype=torch.long, device=given.tokens.device)
    total, weights = torch.zeros((), device=given.tokens.device), 0.0
    for depth, (own, wanted, places) in enumerate(unroll(draft, given, depths)):
        rows, columns = places.T
        if not depth:  # later depths are at some of these places
            with torch.no_grad():
                law = draft.head(wanted).log_softmax(-1)
            where[rows, columns] = torch.arange(len(rows), device=where.device)
        if not len(rows):
            break
        found = draft.head(own).log_softmax(-1)
        weight = LATER**depth
        total = total + weight * functional.kl_div(
            found, law[where[rows, columns]], reduction="batchmean", log_target=True
        )
        weights += weight
    return total / weights


def held_out_loss(draft: EagleDraft, texts: Sequence[Text]) -> float:
    """`loss` over all texts."""
    with torch.no_grad():
        parts = [texts[first : first + ROWS] for first in range(0, len(texts), ROWS)]
        losses = [float(loss(draft, batch(part, draft))) * len(part) for part in parts]
    return sum(losses) / len(texts)


def train(
    draft: EagleDraft,
    texts: Sequence[Text],
    held_out: Sequence[Text],
    schedule: Schedule,
    directory: Path,
    progress: Progress,
) -> list[str]:
    """Train in place and leave the weights of the lowest held-out loss; returns the log.

    `directory` keeps a checkpoint of each evaluation, from which an interrupted training of the same texts goes on.
    """
    own = [parameter for parameter in draft.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(own, betas=(0.9, 0.95), weight_decay=0.01)
    state = _State(directory / CHECKPOINT, asdict(schedule) | {"texts": len(texts)})
    state.restore(draft, optimiser)
    if not state.log:
        state.note(draft, held_out_loss(draft, held_out), 0, float("nan"), progress)
    every = max(1, schedule.steps // EVALUATIONS)
    recent: list[float] = []
    draft.train()
    while state.step < schedule.steps and (state.worse < PATIENCE or 2 * state.step < schedule.steps):
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate(state.step)
        value = loss(draft, batch([texts[index] for index in _chosen(texts, state.step, schedule.seed)], draft))
        value.backward()
        torch.nn.utils.clip_grad_norm_(own, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        recent.append(value.item())
        state.step += 1
        if state.step % every == 0 or state.step == schedule.steps:
            state.note(draft, held_out_loss(draft, held_out), state.step, sum(recent) / len(recent), progress)
            state.keep(draft, optimiser)
            recent = []
    draft.load_state_dict(state.best, strict=False)
    draft.eval()
    return state.log


def _chosen(texts: Sequence[Text], step: int, seed: int) -> list[int]:
    """Texts of a step, of about one prompt length, so that little is padded. Each text once an epoch."""
    per_epoch = -(-len(texts) // ROWS)
    epoch, index = divmod(step, per_epoch)
    draw = random.Random(f"{seed}/{epoch}")
    noise = [draw.random() * 30 for _ in texts]
    order = sorted(range(len(texts)), key=lambda number: texts[number].prompt + noise[number])
    groups = [order[first : first + ROWS] for first in range(0, len(order), ROWS)]
    draw.shuffle(groups)
    return groups[index]


class _State:
    """Where training stands: what a checkpoint holds."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.step, self.worse, self.lowest = 0, 0, float("inf")
        self.best: dict[str, torch.Tensor] = {}
        self.log: list[str] = []
        self.started = time.process_time()

    def note(self, draft: EagleDraft, held_out: float, step: int, training: float, progress: Progress) -> None:
        """An evaluation: a line of the log, and the weights if they are the best so far."""
        self.worse = 0 if held_out < self.lowest else self.worse + 1
        if not self.worse:
            self.lowest = held_out
            self.best = {name: value.detach().clone() for name, value in draft.trained().items()}
        trained = f"training {training:.4f} " if step else ""
        self.log.append(
            f"step {step} {trained}held out {held_out:.4f} nats, {time.process_time() - self.started:.0f} CPU s"
        )
        progress(self.log[-1])

    def keep(self, draft: EagleDraft, optimiser: Any) -> None:
        """Write the checkpoint."""
        held = {name: getattr(self, name) for name in ("settings", "step", "worse", "lowest", "best", "log")}
        part = self.path.with_suffix(".part")
        torch.save({**held, "weights": draft.trained(), "optimiser": optimiser.state_dict()}, part)
        os.replace(part, self.path)

    def restore(self, draft: EagleDraft, optimiser: Any) -> None:
        """Go on from the checkpoint, if there is one of the same settings."""
        if not self.path.is_file():
            return
        held = torch.load(self.path, weights_only=True)
        if held.pop("settings") != self.settings:
            return
        draft.load_state_dict(held.pop("weights"), strict=False)
        optimiser.load_state_dict(held.pop("optimiser"))
        for name, value in held.items():
            setattr(self, name, value)
