"""Self-speculation: the target without some of its layers (SWIFT, arXiv 2410.06916; LayerSkip, arXiv 2404.16710).

The weights are the target's own, the KV cache is not: simpler than a shared one, and paid for in KV memory.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch import nn

from calibrate.drafters.model import ModelDrafter
from traces.errors import InputError

PREFIX = "skip:"


def skip_drafter(target: Any, spec: str, vocab_size: int) -> ModelDrafter:
    """`skip:14,16,18`: layers by number from 0. Raises InputError for one that is not there, or if none is left."""
    model = without_layers(target, _layers(spec))
    return ModelDrafter(model, spec, vocab_size, kind="early-exit", shares_weights=True)


def without_layers(target: Any, skipped: Sequence[int]) -> Any:
    """A model that shares all weights with `target` and lacks the given layers. Raises InputError."""
    layers = int(target.config.num_hidden_layers)
    wrong = [index for index in skipped if not 0 <= index < layers]
    if wrong:
        raise InputError(f"skip: layer {wrong[0]} is not there; the target has layers 0 to {layers - 1}")
    kept = [index for index in range(layers) if index not in set(skipped)]
    if not kept:
        raise InputError(f"skip: all {layers} layers of the target are skipped; leave one at least")
    # tensors that deepcopy believes to have copied are shared
    model = copy.deepcopy(target, {id(t): t for t in chain(target.parameters(), target.buffers())})
    parent, name = _layer_list(model, layers)
    remaining = nn.ModuleList(getattr(parent, name)[index] for index in kept)
    setattr(parent, name, remaining)
    _renumber(remaining)
    model.config.num_hidden_layers = len(kept)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = [model.config.layer_types[index] for index in kept]
    return model


def _layer_list(model: Any, layers: int) -> tuple[Any, str]:
    """The outermost list of that many modules, as (module, attribute)."""
    for part in model.modules():
        for name, child in part.named_children():
            if isinstance(child, nn.ModuleList) and len(child) == layers:
                return part, name
    raise InputError(f"skip: {type(model).__name__} has no list of {layers} layers to take some from")


def _renumber(layers: nn.ModuleList) -> None:
    """Layers find their part of the KV cache by number."""
    for index, layer in enumerate(layers):
        for part in layer.modules():
            if getattr(part, "layer_idx", None) is not None:
                part.layer_idx = index


def _layers(spec: str) -> list[int]:
    try:
        found = [int(number) for number in spec.removeprefix(PREFIX).split(",")]
    except ValueError:
        raise InputError(f"draft {spec}: expected layer numbers, as in skip:14,16,18") from None
    if len(set(found)) < len(found):
        raise InputError(f"draft {spec}: a layer is named twice")
    return found
