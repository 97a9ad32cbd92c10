"""Attention with grouped queries that reads the cache where it lies, for the model runner.

transformers repeats keys and values for each query head before it calls torch's kernel when a mask is given: with a
long context a verification then spends most of its time on copies of the cache. Here the query heads of a group become
rows of one head instead, (KV heads, group * q) against the keys and values as they are, which is the same sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "draftlab_grouped_sdpa"

packed_attention: Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float | None], torch.Tensor] | None = None
"""Takes the place of the attention below while a packed pass runs (calibrate.live.packed)."""


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """query (B, heads, q, size), key and value (B, KV heads, length, size), mask (B, 1, q, length) or none.

    Returns (B, q, heads, size). What it has no use for (no mask, one mask a head, a bias) transformers' own does.
    """
    if packed_attention is not None:
        return packed_attention(query, key, value, scaling), None
    batch, heads, length, size = query.shape
    group = heads // key.shape[1]
    if attention_mask is None or attention_mask.shape[1] != 1 or group == 1 or others.get("position_bias") is not None:
        sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
        result: tuple[torch.Tensor, None] = sdpa(module, query, key, value, attention_mask, scaling=scaling, **others)
        return result
    rows = query.reshape(batch, heads // group, group * length, size)
    mask = attention_mask[..., : key.shape[2]].repeat(1, 1, group, 1)  # 4.x makes it a column too long
    found = torch.nn.functional.scaled_dot_product_attention(rows, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(batch, heads, length, value.shape[-1]).transpose(1, 2).contiguous(), None


def use_grouped_attention(model: Any) -> None:
    """Let a model that uses torch's attention use this one; others stay as they are."""
    ALL_ATTENTION_FUNCTIONS.setdefault(NAME, grouped_attention)
    try:  # where versions make masks by the name of the attention, ours are those of torch's
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    except ImportError:
        pass
    else:
        # for the class, not the instance: unknown names get no mask at all, and padding would be attended to
        ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    configs = {id(part.config): part.config for part in model.modules() if hasattr(part, "config")}
    for config in configs.values():
        if getattr(config, "_attn_implementation", None) == "sdpa":
            config._attn_implementation = NAME


def is_grouped(model: Any) -> bool:
    """Whether all attention of the model goes through this one."""
    configs = [part.config for part in model.modules() if hasattr(part, "config")]
    return all(getattr(config, "_attn_implementation", None) == NAME for config in configs)
