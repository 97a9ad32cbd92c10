"""An EAGLE-style module with random weights: the interface of calibrate.eagle.EagleDraft, nothing trained."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import LlamaModel

# transformers renames the argument in 5.x and will drop the old name
CACHE = "cache" if "cache" in inspect.signature(LlamaModel.forward).parameters else "past_key_values"


@dataclass
class Output:
    logits: Any
    hidden_states: Any


class RandomEagle(nn.Module):
    """One layer on (embedding of the token, hidden state before it), the target's embedding and head."""

    def __init__(self, target: Any, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.target = [target]  # not a part: its weights are not the draft's
        config = type(target.config)(**{**target.config.to_dict(), "num_hidden_layers": 1})
        self.config = config
        self.mix = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.body = LlamaModel(config)

    def forward(
        self,
        input_ids: Any,
        hidden_states: Any,
        past_key_values: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
    ) -> Output:
        embedded = self.target[0].get_input_embeddings()(input_ids)
        mixed = self.mix(torch.cat([embedded, hidden_states], -1)) + hidden_states
        found = self.body(
            inputs_embeds=mixed,
            **{CACHE: past_key_values},
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=past_key_values is not None,
        ).last_hidden_state
        return Output(self.target[0].lm_head(found), found)
