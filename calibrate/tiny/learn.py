"""The training loop of all three models: batches, losses, optimisers, log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from calibrate.tiny import corpus
from calibrate.tiny.model import weights_digest
from calibrate.tiny.muon import Muon
from calibrate.tiny.recipe import BATCH_TOKENS, LONG, SHORT, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOG_EVERY = 50
Loss = Callable[[Any, int], Tensor]


@dataclass
class Log:
    """Lines of the training log; each is printed as it comes."""

    lines: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.process_time)

    def write(self, line: str) -> None:
        line = f"{time.process_time() - self.started:7.1f} {line}"
        print(line, flush=True)
        self.lines.append(line)


def use_one_thread() -> None:
    """One thread reproduces bit for bit; with two the order of sums varies."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


def fit(name: str, model: Any, loss: Loss, schedule: Schedule, log: Log, stop_after: int | None = None) -> None:
    """Train `model` in place on `loss(model, step)`; `stop_after` ends early and leaves the schedule as it is."""
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    known = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    muon = Muon(matrices)
    adamw = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
    model.train()
    recent: list[float] = []
    for step in range(schedule.total if stop_after is None else stop_after):
        value = loss(model, step)
        value.backward()
        rate = schedule.rate(step)
        muon.step(schedule.muon * rate)
        for group in adamw.param_groups:
            group["lr"] = schedule.adamw * rate
        adamw.step()
        adamw.zero_grad(set_to_none=True)
        recent.append(value.item())
        if (step + 1) % LOG_EVERY == 0 or step + 1 == schedule.total:
            mean = sum(recent) / len(recent)
            log.write(f"{name} step {step + 1} loss {mean:.4f} weights {weights_digest(model)[:16]}")
            recent = []
    model.eval()


def rows(tokens: NDArray[np.uint16], step: int, length: int, count: int) -> Tensor:
    """Rows `step` * `count` ... of the token file, wrapping around. Shape (count, length + 1), the last to predict."""
    starts = (np.arange(count) + step * count) * length % (len(tokens) - length)
    return torch.from_numpy(np.stack([tokens[start : start + length + 1] for start in starts]).astype(np.int64))


def repeated(step: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens with a period of 16 to 64, and labels: -100 where nothing is to learn. Shapes (rows, SHORT + 1)."""
    random = np.random.default_rng([seed, step])
    batch = random.integers(corpus.END_ID + 1, corpus.VOCABULARY, (BATCH_TOKENS // SHORT, SHORT + 1))
    periods = random.integers(16, SHORT // 2 + 1, len(batch))
    for row, period in zip(batch, periods, strict=True):
        row[:] = np.resize(row[:period], len(row))
    labels = np.where(np.arange(SHORT + 1) < periods[:, None], -100, batch)
    return torch.from_numpy(batch), torch.from_numpy(labels)


def text_loss(tokens: NDArray[np.uint16], schedule: Schedule) -> Loss:
    """Cross-entropy of the next token: first of repeated random tokens, then of the text."""

    def loss(model: Any, step: int) -> Tensor:
        if step < schedule.copying:
            inputs, labels = repeated(step, schedule.seed)
        else:
            length = schedule.length(step)
            inputs = labels = rows(tokens, step - schedule.copying, length, BATCH_TOKENS // length)
        logits = model(input_ids=inputs[:, :-1], use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())

    return loss


def distillation_loss(target: Any, tokens: NDArray[np.uint16], samples: NDArray[np.uint16]) -> Loss:
    """KL(target || draft), half on the text and half on what the target wrote; samples of shape (n, LONG + 1)."""
    half = BATCH_TOKENS // LONG // 2

    def loss(draft: Any, step: int) -> Tensor:
        chosen = (np.arange(half) + step * half) % len(samples)
        written = torch.from_numpy(samples[chosen].astype(np.int64))
        inputs = torch.cat([rows(tokens, step, LONG, half), written])[:, :-1]
        with torch.no_grad():
            wanted = functional.log_softmax(target(input_ids=inputs, use_cache=False).logits.flatten(0, 1), -1)
        found = functional.log_softmax(draft(input_ids=inputs, use_cache=False).logits.flatten(0, 1), -1)
        return functional.kl_div(found, wanted, reduction="batchmean", log_target=True)

    return loss
