"""Pairs of random tiny models over letters, for tests: seconds to make, no files."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from calibrate.drafters.base import Drafter
from calibrate.drafters.model import ModelDrafter
from calibrate.drafters.ngram import NgramDrafter
from calibrate.drafters.skip import skip_drafter
from calibrate.pairs import Pair, make_pair
from calibrate.prompts import Prompt

LETTERS = 40
PROMPTS = [Prompt("first", "abc"), Prompt("second", "abcabdabcabe"), Prompt("first", "hgfedcbaaa")]


class Letters:
    """A tokenizer with one token a character, from "A" on."""

    chat_template = bos_token_id = eos_token_id = None

    def get_vocab(self) -> dict[str, int]:
        return {chr(65 + index): index for index in range(LETTERS)}

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) - 65 for letter in text]}


def llama(seed: int, *, layers: int = 3, vocabulary: int = LETTERS) -> Any:
    """Weights large enough for laws that are far from even."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


def gpt2(seed: int, *, layers: int = 2, vocabulary: int = LETTERS) -> Any:
    """Absolute positions (F47)."""
    if not getattr(GPT2LMHeadModel, "_supports_cache_class", True):
        pytest.skip("this version of transformers has no cache object for the architecture")
    torch.manual_seed(seed)
    shape = {"n_embd": 32, "n_layer": layers, "n_head": 4, "n_positions": 128, "initializer_range": 0.15}
    return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, bos_token_id=None, eos_token_id=None, **shape)).eval()


def noisy(model: Any, amount: float, seed: int = 0) -> Any:
    """The model with its weights shifted a little: a draft that agrees often, not always."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(amount * parameter.std() * torch.randn(parameter.shape, generator=generator))
    return model


def pair(target: Any, drafter: Drafter) -> Pair:
    return make_pair(target, Letters(), drafter, LETTERS, target_name="target", draft_name=drafter.name)


def model_pair(make: Any, noise: float = 0.3) -> Pair:
    """A target and its noisy copy."""
    return pair(make(0), ModelDrafter(noisy(make(0), noise), "noisy", LETTERS))


def skip_pair() -> Pair:
    target = llama(0)
    return pair(target, skip_drafter(target, "skip:1", LETTERS))


def ngram_pair() -> Pair:
    return pair(llama(0), NgramDrafter(LETTERS, torch.device("cpu")))
