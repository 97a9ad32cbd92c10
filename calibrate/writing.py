"""The target writes: one text after each prompt, all of a batch together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.drafters.base import CHUNK
from calibrate.pairs import Pair
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling, draw, probabilities


@dataclass(frozen=True)
class Text:
    """A prompt and what the target wrote after it.

    slot       of the target's cache, where all of it but the last token is
    outputs    what it wrote, beyond the end of the text by the depth of a window
    recorded   tokens of `outputs` up to the end of the text
    hidden     [len(prompt), H], the target's last hidden states of the prompt; None if the draft needs none
    """

    slot: int
    prompt: list[int]
    outputs: list[int]
    recorded: int
    hidden: torch.Tensor | None


class Length(Protocol):
    """See calibrate.record.Settings."""

    @property
    def output_tokens(self) -> int: ...
    @property
    def depth(self) -> int: ...


def choose(logits: torch.Tensor, sampling: Sampling, luck: torch.Tensor) -> torch.Tensor:
    """The next token of each row, int64[B]: logits [B, V], luck [B] in [0, 1)."""
    return logits.argmax(-1) if sampling.greedy else draw(probabilities(logits, sampling), luck)


def prefill(
    runner: ModelRunner, slot: int, tokens: Sequence[int], keep_hidden: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A prompt into a slot: logits [V] after its last token; the hidden states [len(tokens), H] if they are kept."""
    slots, kept = torch.tensor([slot]), []
    for first in range(0, len(tokens), CHUNK):
        chunk = torch.tensor([tokens[first : first + CHUNK]])
        last = torch.tensor([chunk.shape[1] - 1])
        output = runner.forward(chunk, slots, torch.tensor([first]), logits_at=last)
        if keep_hidden:
            kept.append(output.hidden[0])
    return output.logits[0, 0], torch.cat(kept) if keep_hidden else None


def write(
    pair: Pair,
    target: ModelRunner,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    luck: NDArray[np.float64],
    length: Length,
) -> list[Text]:
    """One text after each prompt, in slots 0, 1, ...; luck [B, output_tokens + depth] decides its draws.

    A text ends with an end token or after `output_tokens`; the target writes `depth` tokens more.
    """
    size, draws = pair.vocab_size, torch.from_numpy(luck)
    starts = [prefill(target, slot, ids, pair.drafter.needs_hidden) for slot, ids in enumerate(prompts)]
    logits = torch.stack([after for after, _ in starts])[:, :size]
    slots, context = torch.arange(len(prompts)), torch.tensor([len(ids) for ids in prompts])
    columns = [choose(logits, sampling, draws[:, 0])]
    recorded = [0] * len(prompts)
    while True:
        newest = columns[-1].tolist()
        for row, token in enumerate(newest):
            if not recorded[row] and (token in pair.end_tokens or len(columns) == length.output_tokens):
                recorded[row] = len(columns)
        if all(recorded) and len(columns) >= max(recorded) + length.depth:
            break
        logits = target.forward(columns[-1][:, None], slots, context).logits[:, 0, :size]
        context = context + 1
        columns.append(choose(logits, sampling, draws[:, len(columns)]))
    outputs = torch.stack(columns, 1).tolist()
    return [
        Text(slot, list(ids), row[: count + length.depth], count, hidden)
        for slot, (ids, row, count, (_, hidden)) in enumerate(zip(prompts, outputs, recorded, starts, strict=True))
    ]
