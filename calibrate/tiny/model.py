"""Models and tokenizer in the layout of Hugging Face: made, rounded, hashed, saved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from calibrate.tiny import corpus
from calibrate.tiny.recipe import LONG, Shape

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SUMS = "SHA256SUMS"
WEIGHTS, TOKENIZER_CONFIG = "model.safetensors", "tokenizer_config.json"
EVALUATION = "evaluation.json"  # holds times, which differ from run to run, and so has no sum


def make(shape: Shape, seed: int) -> Any:
    """A LlamaForCausalLM with random weights; float32, on the CPU."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=corpus.VOCABULARY,
            hidden_size=shape.width,
            intermediate_size=shape.feed_forward,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=4 * LONG,  # what it may be asked; it was trained on LONG
            tie_word_embeddings=True,
            pad_token_id=corpus.PAD_ID,
            bos_token_id=corpus.BEGIN_ID,
            eos_token_id=corpus.END_ID,
        )
    )


def from_layers(target: Any, shape: Shape, layers: Sequence[int]) -> Any:
    """A smaller model that starts from the target's embedding, last norm and the given layers."""
    draft = make(shape, seed=0)
    draft.model.embed_tokens.load_state_dict(target.model.embed_tokens.state_dict())
    draft.model.norm.load_state_dict(target.model.norm.state_dict())
    for own, index in zip(draft.model.layers, layers, strict=True):
        own.load_state_dict(target.model.layers[index].state_dict())
    return draft


def round_to_half(model: Any) -> None:
    """Round the weights to float16 in place: the rounded model is the reference, in float32 arithmetic."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half().float())


def weights_digest(model: Any) -> str:
    """sha256 of all parameters in order, to compare two runs bit for bit."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()


def save(model: Any, tokenizer: Tokenizer, directory: Path) -> None:
    """Write config.json, model.safetensors (float16), generation_config.json and the tokenizer."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=corpus.BEGIN,
        eos_token=corpus.END,
        pad_token=corpus.PAD,
        clean_up_tokenization_spaces=False,
        model_max_length=4 * LONG,
    )
    model.half().save_pretrained(directory)
    model.float()
    wrapped.save_pretrained(directory)
    (directory / WEIGHTS).chmod(0o644)  # written for the owner alone
    config = json.loads((directory / TOKENIZER_CONFIG).read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # transformers 5 writes a class that 4.x does not know
    (directory / TOKENIZER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def load(directory: Path) -> Any:
    """A model for evaluation: the float16 weights in float32 arithmetic."""
    return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def write_sums(directory: Path) -> None:
    """SHA256SUMS of every other file below `directory`, as `sha256sum -c` reads it."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and path.name not in (SUMS, EVALUATION))
    lines = (f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(directory).as_posix()}\n" for p in files)
    (directory / SUMS).write_text("".join(lines), encoding="utf-8")
