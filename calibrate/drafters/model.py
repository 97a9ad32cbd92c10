"""A draft model that reads text alone: any causal LM with the target's vocabulary."""

from __future__ import annotations

from typing import Any

import torch

from calibrate.drafters.session import RunnerSession
from calibrate.runner import ModelRunner


class ModelSession(RunnerSession):
    """See calibrate.drafters.base.ScanningSession."""

    def scan(self, slot: int, tokens: torch.Tensor) -> torch.Tensor:
        slots = torch.tensor([slot])
        output = self.runner.forward(tokens[None], slots, self.lengths[slots])
        self.lengths[slot] += len(tokens)
        return output.logits[0, :, : self.vocab_size]


class ModelDrafter:
    """Autoregressive drafting: one pass a token. See calibrate.drafters.base.Drafter."""

    needs_hidden = False
    first_output_token = 0
    position_only = True

    def __init__(
        self, model: Any, name: str, vocab_size: int, *, kind: str = "autoregressive", shares_weights: bool = False
    ) -> None:
        self.model = model
        self.name = name
        self.vocab_size = vocab_size
        self.kind = kind
        self.shares_weights = shares_weights

    def session(self, max_num_seqs: int, max_model_len: int) -> ModelSession:
        runner = ModelRunner(self.model, max_num_seqs=max_num_seqs, max_model_len=max_model_len)
        return ModelSession(runner, self.vocab_size)
