"""An EAGLE-style draft (arXiv 2401.15077): one layer on the embedding of a token and the hidden state before it."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.drafters.session import RunnerSession
from calibrate.runner import ModelRunner


class EagleSession(RunnerSession):
    """Feeds the target's hidden states with the text, and the draft's own with the tokens it drafts."""

    hidden: torch.Tensor

    def begin(
        self, slots: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, hidden: torch.Tensor | None = None
    ) -> torch.Tensor:
        last = counts - 1
        output = self.runner.forward(tokens, slots, self.lengths[slots], hidden=hidden, logits_at=last)
        self.hidden = output.hidden[torch.arange(len(slots)), last][:, None]
        self._start(slots, counts)
        return output.logits[:, 0, : self.vocab_size]

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        context = self.lengths[self.slots] + self.drafted
        output = self.runner.forward(tokens[:, None], self.slots, context, hidden=self.hidden)
        self.hidden = output.hidden
        self._stepped()
        return output.logits[:, 0, : self.vocab_size]

    def keep(self, rows: torch.Tensor) -> None:
        super().keep(rows)
        self.hidden = self.hidden[rows.to(self.hidden.device)]

    def commit(self, accepted: torch.Tensor) -> None:
        """Nothing stays: the cache holds own hidden states, and the target's are known now."""


class EagleDrafter:
    """A calibrate.eagle.EagleDraft. See calibrate.drafters.base.Drafter."""

    kind = "eagle"
    needs_hidden = True
    first_output_token = 1
    position_only = False
    shares_weights = False

    def __init__(self, model: Any, name: str, vocab_size: int) -> None:
        self.model = model
        self.name = name
        self.vocab_size = vocab_size

    def session(self, max_num_seqs: int, max_model_len: int) -> EagleSession:
        runner = ModelRunner(self.model, max_num_seqs=max_num_seqs, max_model_len=max_model_len)
        return EagleSession(runner, self.vocab_size)
