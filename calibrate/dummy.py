"""A model's shape without its weights, to measure what it would cost; with fewer layers where it would not fit."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from traces.errors import InputError

PER_LAYER = ("layer_types",)
"""Settings with one entry a layer, cut with them."""


def dummy_model(
    shape: str | os.PathLike[str] | Mapping[str, Any],
    *,
    num_layers: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    seed: int = 0,
) -> Any:
    """A causal LM with random weights, made on the device: costs only, its text means nothing.

    shape        a hub id, a directory with config.json, that file, or its contents with `model_type`
    num_layers   instead of all; `full_layers` on the model's config keeps how many there are

    Raises InputError if the shape cannot be read, has no causal LM or fewer layers, or does not fit the memory.
    """
    config = _config(shape)
    layers = int(config.num_hidden_layers)
    if num_layers is not None and not 1 <= num_layers <= layers:
        raise InputError(f"--num-layers: expected 1 to {layers}, got {num_layers}")
    if num_layers is not None:
        document = config.to_dict() | {"num_hidden_layers": num_layers}
        document |= {name: document[name][:num_layers] for name in PER_LAYER if document.get(name)}
        config = _config(document)
    config.full_layers = layers
    previous = torch.get_default_dtype()
    torch.manual_seed(seed)
    try:
        torch.set_default_dtype(dtype)  # so that no copy in another precision ever exists
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config)
    except torch.OutOfMemoryError:
        raise InputError(
            f"{config.model_type} with {config.num_hidden_layers} layers does not fit {device}; give fewer --num-layers"
        ) from None
    except ValueError as error:
        raise InputError(f"{config.model_type}: no causal language model: {error}") from None
    finally:
        torch.set_default_dtype(previous)
    return model.to(dtype).eval()


def _config(shape: str | os.PathLike[str] | Mapping[str, Any]) -> Any:
    if isinstance(shape, Mapping):
        settings = dict(shape)
        name = settings.pop("model_type", None)
        if name is None:
            raise InputError("model shape: model_type is missing")
        try:
            # the precision is the caller's, not the file's
            return AutoConfig.for_model(
                name, **{k: v for k, v in settings.items() if k not in ("dtype", "torch_dtype")}
            )
        except (ValueError, TypeError) as error:
            raise InputError(f"model shape: {error}") from None
    place = Path(shape)
    try:
        found = AutoConfig.from_pretrained(place.parent if place.name == "config.json" else shape)
    except (OSError, ValueError) as error:
        raise InputError(f"{shape}: no model configuration: {error}") from None
    return _config(found.to_dict())
