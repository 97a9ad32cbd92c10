"""What the target writes after prompts, with the hidden states that an EAGLE-style draft reads; kept on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file  # type: ignore[import-not-found]

from calibrate.runner import ModelRunner
from traces.errors import InputError

CHUNK = 96
"""Prompts written after together; one file."""
PREFILL = 16
"""Prompts read in one pass."""
TEMPERATURES = (0.0, 0.7, 1.0)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Text:
    """One prompt and what the target wrote after it.

    tokens   int64[n], the prompt and the answer with its end token
    prompt   tokens of it that are the prompt
    hidden   float16[n - 1, H], what the target's head read after each token but the last
    """

    tokens: torch.Tensor
    prompt: int
    hidden: torch.Tensor


@dataclass(frozen=True)
class Written:
    """Texts in the order of the prompts, and mass float32[V]: the target's probabilities summed over all answers."""

    texts: list[Text]
    mass: torch.Tensor


def write(
    target: Any,
    prompts: Sequence[Sequence[int]],
    directory: Path,
    *,
    end_tokens: frozenset[int],
    new_tokens: int,
    enough: float = math.inf,
    temperatures: Sequence[float] = TEMPERATURES,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Written:
    """The answers to prompts (token ids), at most `new_tokens` long, each at the next temperature in turn.

    It ends after the last prompt or when the answers have `enough` tokens together.

    One file of `CHUNK` prompts after the other is made in `directory`; those that are there are read, so that an
    interrupted run goes on. Raises InputError if one of them is damaged.
    """
    directory.mkdir(parents=True, exist_ok=True)
    texts: list[Text] = []
    mass = torch.zeros(target.config.get_text_config().vocab_size)
    runner: ModelRunner | None = None
    for first in range(0, len(prompts), CHUNK):
        path = directory / f"{first:06}.safetensors"
        chunk = prompts[first : first + CHUNK]
        if not path.is_file():
            if runner is None:
                longest = max(map(len, prompts)) + new_tokens
                runner = ModelRunner(target, max_num_seqs=min(CHUNK, len(prompts)), max_model_len=longest)
            heat = torch.tensor([temperatures[(first + row) % len(temperatures)] for row in range(len(chunk))])
            generator = torch.Generator().manual_seed(seed * 1_000_003 + first)
            luck = torch.rand(len(chunk), new_tokens, generator=generator)
            _save(_answer(runner, chunk, end_tokens, heat, luck), path)
        found, weight = _load(path)
        texts += found
        mass += weight
        progress(f"{len(texts)} of {len(prompts)} answers written, {answer_tokens(texts)} tokens")
        if answer_tokens(texts) >= enough:
            break
    return Written(texts, mass)


def answer_tokens(texts: Sequence[Text]) -> int:
    """Tokens that the target wrote."""
    return sum(len(text.tokens) - text.prompt for text in texts)


def _answer(
    runner: ModelRunner,
    prompts: Sequence[Sequence[int]],
    end_tokens: frozenset[int],
    temperatures: torch.Tensor,
    luck: torch.Tensor,
) -> Written:
    """luck: uniform numbers (rows, new tokens), so that a row's draws do not depend on its neighbours."""
    rows = len(prompts)
    tokens = [list(prompt) for prompt in prompts]
    states: list[list[torch.Tensor]] = [[] for _ in prompts]
    mass = torch.zeros(runner.vocab_size)
    logits = torch.zeros(rows, runner.vocab_size)
    order = sorted(range(rows), key=lambda row: len(prompts[row]))  # slot -> row; rows of one length read together
    for first in range(0, rows, PREFILL):
        group = order[first : first + PREFILL]
        counts = torch.tensor([len(prompts[row]) for row in group])
        padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(prompts[row]) for row in group], batch_first=True)
        slots = torch.arange(first, first + len(group))
        output = runner.forward(padded, slots, torch.zeros(len(group), dtype=torch.long), logits_at=counts - 1)
        logits[first : first + len(group)] = output.logits[:, 0].cpu()
        for index, row in enumerate(group):
            states[row].append(output.hidden[index, : len(prompts[row])].half().cpu())
    while True:
        mass += logits.softmax(-1).sum(0)
        step = [len(tokens[row]) - len(prompts[row]) for row in order]
        chosen = _choose(logits, temperatures[order], luck[order, step])
        for row, token in zip(order, chosen.tolist(), strict=True):
            tokens[row].append(token)
        order = _without_ended(runner, order, tokens, [token in end_tokens for token in chosen.tolist()], luck, prompts)
        if not order:
            break
        newest = torch.tensor([tokens[row][-1:] for row in order])
        context = torch.tensor([len(tokens[row]) - 1 for row in order])
        output = runner.forward(newest, torch.arange(len(order)), context)
        logits = output.logits[:, 0].cpu()
        for slot, row in enumerate(order):
            states[row].append(output.hidden[slot].half().cpu())
    texts = [
        Text(torch.tensor(own), len(prompt), torch.cat(hidden)[: len(own) - 1])
        for own, prompt, hidden in zip(tokens, prompts, states, strict=True)
    ]
    return Written(texts, mass)


def _choose(logits: torch.Tensor, temperatures: torch.Tensor, luck: torch.Tensor) -> torch.Tensor:
    """The next tokens int64[rows]: the likeliest at temperature 0, otherwise by inverting the distribution function."""
    greedy = logits.argmax(-1)
    warm = temperatures > 0
    shares = (logits[warm] / temperatures[warm, None]).softmax(-1).double().cumsum(-1)
    drawn = torch.searchsorted(shares, (luck[warm, None].double() * shares[:, -1:]))[:, 0]
    return greedy.masked_scatter(warm, drawn.clamp(max=logits.shape[-1] - 1))


def _without_ended(
    runner: ModelRunner,
    order: list[int],
    tokens: list[list[int]],
    ended: list[bool],
    luck: torch.Tensor,
    prompts: Sequence[Sequence[int]],
) -> list[int]:
    """Rows that go on, in slots 0, 1, ...: the last one moves to where one has ended."""
    full = [len(tokens[row]) - len(prompts[row]) >= luck.shape[1] for row in order]
    alive = [not (end or done) for end, done in zip(ended, full, strict=True)]
    kept = list(order)
    while alive:
        if not alive[-1]:
            alive.pop()
            kept.pop()
        elif not all(alive):
            slot, last = alive.index(False), len(alive) - 1
            runner.copy(last, torch.tensor([slot]), length=len(tokens[kept[last]]))
            kept[slot], alive[slot] = kept[last], True
            alive.pop()
            kept.pop()
        else:
            break
    return kept


def _save(written: Written, path: Path) -> None:
    tensors = {
        "tokens": torch.cat([text.tokens for text in written.texts]).int(),
        "lengths": torch.tensor([len(text.tokens) for text in written.texts]),
        "prompts": torch.tensor([text.prompt for text in written.texts]),
        "hidden": torch.cat([text.hidden for text in written.texts]),
        "mass": written.mass,
    }
    part = path.with_suffix(".part")
    save_file(tensors, part)
    os.replace(part, path)


def _load(path: Path) -> tuple[list[Text], torch.Tensor]:
    try:
        found = load_file(path)
    except (SafetensorError, OSError):
        raise InputError(f"{path}: cannot be read; delete it and it is made again") from None
    return list(_split(found)), found["mass"]


def _split(found: dict[str, torch.Tensor]) -> Iterator[Text]:
    lengths = found["lengths"].tolist()
    texts = found["tokens"].long().split(lengths)
    hidden = found["hidden"].split([length - 1 for length in lengths])
    for tokens, prompt, states in zip(texts, found["prompts"].tolist(), hidden, strict=True):
        yield Text(tokens, prompt, states)
