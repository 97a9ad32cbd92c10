"""Drafting with a model: what all sessions over a ModelRunner have in common."""

from __future__ import annotations

import torch

from calibrate.drafters.base import CHUNK
from calibrate.runner import ModelRunner


class RunnerSession:
    """Sessions of models; see calibrate.drafters.base.Session."""

    def __init__(self, runner: ModelRunner, vocab_size: int) -> None:
        self.runner = runner
        self.vocab_size = vocab_size
        self.lengths = torch.zeros(runner.max_num_seqs, dtype=torch.long)
        self.slots = self._round = self._rows = self._fed = self.lengths[:0]
        self.drafted = 0

    def fill(self, slot: int, tokens: torch.Tensor, hidden: torch.Tensor | None = None) -> None:
        for first in range(0, len(tokens), CHUNK):
            chunk = tokens[first : first + CHUNK]
            states = None if hidden is None else hidden[None, first : first + CHUNK]
            self.begin(torch.tensor([slot]), chunk[None], torch.tensor([len(chunk)]), states)

    def begin(
        self, slots: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, hidden: torch.Tensor | None = None
    ) -> torch.Tensor:
        output = self.runner.forward(tokens, slots, self.lengths[slots], logits_at=counts - 1)
        self._start(slots, counts)
        return output.logits[:, 0, : self.vocab_size]

    def _start(self, slots: torch.Tensor, counts: torch.Tensor) -> None:
        """A round begins: the new text is in the cache, no draft token is."""
        self.lengths[slots] += counts
        self.slots, self.drafted = slots, 0
        self._round, self._rows, self._fed = slots, torch.arange(len(slots)), torch.zeros_like(slots)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        output = self.runner.forward(tokens[:, None], self.slots, self.lengths[self.slots] + self.drafted)
        self._stepped()
        return output.logits[:, 0, : self.vocab_size]

    def _stepped(self) -> None:
        self.drafted += 1
        self._fed[self._rows] = self.drafted

    def keep(self, rows: torch.Tensor) -> None:
        self.slots, self._rows = self.slots[rows], self._rows[rows]

    def commit(self, accepted: torch.Tensor) -> None:
        # what was fed beyond the accepted tokens is overwritten; the last draft token was never fed
        self.lengths[self._round] += torch.minimum(accepted.cpu(), self._fed)

    def fork(self, source: int, to: torch.Tensor, lengths: torch.Tensor) -> None:
        self.runner.copy(source, to, length=int(lengths.max()))
        self.lengths[to] = lengths

    def reset(self, slot: int) -> None:
        self.lengths[slot] = 0
