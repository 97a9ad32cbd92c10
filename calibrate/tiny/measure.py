"""Held-out measures of a target and its drafts: loss, greedy text, acceptance, forward time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache

from calibrate.tiny.corpus import BEGIN_ID, END_ID, PAD_ID
from calibrate.tiny.generated import Document
from calibrate.tiny.recipe import LONG
from calibrate.tiny.sample import CACHE

NEW_TOKENS = 64
LONGEST_PERIOD = 20  # tokens of a loop
CONTEXT = 64  # cached tokens where forward passes are timed
TIMED_STEPS, TIMED_ROUNDS = 16, 7


@dataclass(frozen=True)
class Continuations:
    """What the target wrote after left-padded prompts; all of shape (batch, length).

    attention: 0 on padding before the prompt and after END, else 1
    written: marks the new tokens, END included
    """

    tokens: Tensor
    attention: Tensor
    written: Tensor

    def texts(self) -> list[list[int]]:
        """The new tokens of every row."""
        return [row[mask].tolist() for row, mask in zip(self.tokens, self.written, strict=True)]


def continuations(
    target: Any, tokenizer: Any, prompts: Sequence[str], temperature: float, seed: int = 0
) -> Continuations:
    """NEW_TOKENS tokens after every prompt, fewer where END comes; temperature 0 is greedy."""
    with torch.no_grad():
        ids = [[BEGIN_ID, *tokenizer(prompt)["input_ids"]] for prompt in prompts]
        longest = max(map(len, ids))
        padded = torch.tensor([[PAD_ID] * (longest - len(row)) + row for row in ids])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
        how = {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
        torch.manual_seed(seed)
        tokens = target.generate(input_ids=padded, attention_mask=mask, max_new_tokens=NEW_TOKENS, **how)
        new = tokens[:, longest:]
        ended = (new == END_ID).long().cumsum(1) - (new == END_ID).long() > 0  # strictly after the first END
        attention = torch.cat([mask, (~ended).long()], 1)
        return Continuations(tokens, attention, torch.cat([torch.zeros_like(padded, dtype=torch.bool), ~ended], 1))


def log_probabilities(model: Any, found: Continuations) -> Tensor:
    """Of the next token at every written position, teacher-forced. Shape (written tokens, vocabulary)."""
    with torch.no_grad():
        positions = (found.attention.cumsum(1) - 1).clamp(min=0)
        logits = model(input_ids=found.tokens, attention_mask=found.attention, position_ids=positions).logits
        return functional.log_softmax(logits[:, :-1][found.written[:, 1:]], -1)


def agreement(target: Tensor, draft: Tensor) -> tuple[float, float]:
    """Mean acceptance, sum of min(p, q) at temperature 1 (arXiv 2211.17192), and share of equal argmax.

    Both are log probabilities of shape (positions, vocabulary).
    """
    acceptance = torch.minimum(target.exp(), draft.exp()).sum(-1).mean()
    return float(acceptance), float((target.argmax(-1) == draft.argmax(-1)).float().mean())


def loops(tokens: Sequence[int]) -> bool:
    """Whether something of at most LONGEST_PERIOD tokens stands three times in a row, over 12 tokens or more."""
    for period in range(1, LONGEST_PERIOD + 1):
        run = 0
        for i in range(period, len(tokens)):
            run = run + 1 if tokens[i] == tokens[i - period] else 0
            if run >= max(2 * period, 12 - period):
                return True
    return False


def loss(model: Any, tokenizer: Any, documents: Sequence[Document]) -> float:
    """Mean cross-entropy of whole documents, up to LONG tokens each, in nats per token."""
    with torch.no_grad():
        total, count = 0.0, 0
        for document in documents:
            ids = torch.tensor([[BEGIN_ID, *tokenizer(document.text)["input_ids"]][: LONG + 1]])
            logits = model(input_ids=ids[:, :-1]).logits[0]
            total += float(functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
            count += ids.shape[1] - 1
        return total / count


def forward_ms(models: dict[str, Any], batch: int) -> dict[str, float]:
    """Median time of one forward pass of one token per sequence on CONTEXT cached ones, in ms; models take turns."""
    with torch.no_grad():
        times: dict[str, list[float]] = {name: [] for name in models}
        context = torch.arange(batch * CONTEXT).reshape(batch, CONTEXT) % 1000 + 3
        for round_ in range(TIMED_ROUNDS + 1):
            for name, model in models.items():
                cache = DynamicCache()
                model(input_ids=context, use_cache=True, **{CACHE: cache})
                for _ in range(TIMED_STEPS):
                    started = time.perf_counter()
                    model(input_ids=context[:, :1], use_cache=True, **{CACHE: cache})
                    if round_:  # the first round warms up
                        times[name].append((time.perf_counter() - started) * 1e3)
        return {name: statistics.median(found) for name, found in times.items()}
