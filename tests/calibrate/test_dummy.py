"""Shapes without weights."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from transformers import CONFIG_MAPPING

    from calibrate.dummy import dummy_model
    from traces.errors import InputError

SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
}


def test_fewer_layers_are_made_and_all_are_remembered() -> None:
    model = dummy_model(SHAPE, num_layers=2)
    assert (len(model.model.layers), model.config.num_hidden_layers, model.config.full_layers) == (2, 2, 5)


@pytest.mark.skipif("qwen3" not in CONFIG_MAPPING, reason="this version of transformers does not know the architecture")
def test_settings_with_an_entry_a_layer_are_cut() -> None:
    layer_types = ["sliding_attention", "full_attention"] * 3
    shape = SHAPE | {"model_type": "qwen3", "num_hidden_layers": 6, "layer_types": layer_types, "head_dim": 8}
    assert dummy_model(shape, num_layers=2).config.layer_types == layer_types[:2]


def test_the_precision_is_the_given_one() -> None:
    model = dummy_model(SHAPE | {"torch_dtype": "float32"}, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_the_default_precision_is_left_as_it_was() -> None:
    dummy_model(SHAPE, dtype=torch.bfloat16)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_directory_or_its_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    assert len(dummy_model(tmp_path / name).model.layers) == 5


@pytest.mark.parametrize(
    ("shape", "num_layers", "expected"),
    [
        (SHAPE, 6, "--num-layers: expected 1 to 5, got 6"),
        ({"hidden_size": 16}, None, "model_type is missing"),
        ({"model_type": "no-such"}, None, "no-such"),
        (SHAPE | {"model_type": "clip_vision_model"}, None, "no causal language model"),
    ],
)
def test_mistakes_are_one_line(shape: dict[str, Any], num_layers: int | None, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        dummy_model(shape, num_layers=num_layers)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model configuration"):
        dummy_model(tmp_path / "nothing")
