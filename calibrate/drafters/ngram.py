"""Prompt lookup: what followed the first place in the text where the last n tokens stood before.

The rule of transformers' prompt lookup decoding [C]: the longest n first, its leftmost place; the draft goes on to the
end of the text that was there. A proposed token has draft probability 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from traces.errors import InputError

NAME = "ngram"
LONGEST = 3

Tokens = NDArray[np.int64]


def continuation(text: Tokens, longest: int = LONGEST) -> Tokens:
    """Tokens after the first place where the last n tokens stood, n = `longest` .. 1; none if they never did."""
    for n in range(min(longest, len(text) - 1), 0, -1):
        before = np.lib.stride_tricks.sliding_window_view(text[:-1], n)
        places = (before == text[-n:]).all(axis=1).nonzero()[0]
        if len(places):
            found: Tokens = text[places[0] + n :]
            return found
    return text[:0]


class NgramSession:
    """The text of each slot; see calibrate.drafters.base.Session."""

    def __init__(self, max_num_seqs: int, longest: int, vocab_size: int, device: torch.device) -> None:
        self.longest = longest
        self.vocab_size = vocab_size
        self.device = device
        self.lengths = torch.zeros(max_num_seqs, dtype=torch.long)
        self.texts: list[Tokens] = [np.zeros(0, np.int64)] * max_num_seqs
        self.proposals: list[Tokens] = []
        self.drafted = 0

    def fill(self, slot: int, tokens: torch.Tensor, hidden: torch.Tensor | None = None) -> None:
        self.texts[slot] = np.concatenate([self.texts[slot][: int(self.lengths[slot])], tokens.cpu().numpy()])
        self.lengths[slot] = len(self.texts[slot])

    def begin(
        self, slots: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, hidden: torch.Tensor | None = None
    ) -> torch.Tensor:
        for slot, row, count in zip(slots.tolist(), tokens, counts.tolist(), strict=True):
            self.fill(slot, row[:count])
        self.proposals = [continuation(self.texts[slot], self.longest) for slot in slots.tolist()]
        self.drafted = 0
        return self._logits()

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.drafted += 1  # what was looked up stands, whatever became of the tokens before
        return self._logits()

    def _logits(self) -> torch.Tensor:
        logits = torch.full((len(self.proposals), self.vocab_size), -math.inf)
        for row, proposal in enumerate(self.proposals):
            if self.drafted < len(proposal):
                logits[row, proposal[self.drafted]] = 0.0
        return logits.to(self.device)

    def keep(self, rows: torch.Tensor) -> None:
        self.proposals = [self.proposals[row] for row in rows.tolist()]

    def commit(self, accepted: torch.Tensor) -> None:
        """Nothing: the text comes with the next `begin`."""

    def fork(self, source: int, to: torch.Tensor, lengths: torch.Tensor) -> None:
        for slot, length in zip(to.tolist(), lengths.tolist(), strict=True):
            self.texts[slot] = self.texts[source][:length]
        self.lengths[to] = lengths

    def reset(self, slot: int) -> None:
        self.lengths[slot] = 0


class NgramDrafter:
    """Prompt lookup with up to `longest` tokens. See calibrate.drafters.base.Drafter."""

    kind = "ngram"
    needs_hidden = False
    first_output_token = 0
    position_only = False
    shares_weights = False
    model = None

    def __init__(self, vocab_size: int, device: torch.device, *, longest: int = LONGEST) -> None:
        self.name = NAME if longest == LONGEST else f"{NAME}:n={longest}"
        self.vocab_size = vocab_size
        self.device = device
        self.longest = longest

    def session(self, max_num_seqs: int, max_model_len: int) -> NgramSession:
        return NgramSession(max_num_seqs, self.longest, self.vocab_size, self.device)


def ngram_drafter(spec: str, vocab_size: int, device: torch.device) -> NgramDrafter:
    """`ngram` or `ngram:n=3`. Raises InputError for anything else."""
    name, _, option = spec.partition(":")
    key, _, value = (option or f"n={LONGEST}").partition("=")
    if name != NAME or key != "n" or not value.isdecimal() or int(value) < 1:
        raise InputError(f"draft {spec}: expected ngram or ngram:n=3 with n of at least 1")
    return NgramDrafter(vocab_size, device, longest=int(value))
