"""Continuations by a model with its KV cache, batched."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, LlamaForCausalLM

# transformers renames the argument in 5.x and will drop the old name
CACHE = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"


def continue_texts(model: Any, prompts: Tensor, new_tokens: int, temperature: float, seed: int = 0) -> Tensor:
    """Append `new_tokens` to prompts of one length; temperature 0 is greedy. Shape (batch, prompt + new_tokens).

    END does not stop a row: the token file goes on with the next document, and so does the model.
    """
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        text, inputs, cache = prompts, prompts, DynamicCache()
        for _ in range(new_tokens):
            logits = model(input_ids=inputs, use_cache=True, **{CACHE: cache}).logits[:, -1]
            if temperature == 0:
                inputs = logits.argmax(-1, keepdim=True)
            else:
                inputs = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
            text = torch.cat([text, inputs], 1)
        return text
