"""The EAGLE-style draft (arXiv 2401.15077): one layer over a token's embedding and the target's state before it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file  # type: ignore[import-not-found]
from torch import nn
from transformers import LlamaConfig, LlamaModel

from calibrate.loading import EAGLE_TYPE
from traces.errors import InputError

# transformers renames the argument in 5.x and will drop the old name
CACHE = "cache" if "cache" in inspect.signature(LlamaModel.forward).parameters else "past_key_values"
CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class Shape:
    """Sizes of a draft, most of them the target's.

    embedding_size      width of the target's token embedding
    hidden_size         width of the states that the target's head reads, and of the draft
    target_vocab_size   logits of the target
    draft_vocab_size    tokens that the draft can propose
    """

    embedding_size: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rope_theta: float
    rms_norm_eps: float
    target_vocab_size: int
    draft_vocab_size: int


@dataclass
class EagleOutput:
    """logits [B, q, V] over the target's vocabulary, -inf for what is not in the draft's; hidden_states [B, q, H]."""

    logits: torch.Tensor
    hidden_states: torch.Tensor


class EagleDraft(nn.Module):  # type: ignore[misc,unused-ignore]  # Any where torch is not installed
    """For token y_t at position t and the target's state h_{t-1} of the token before: the next token's logits.

        x_t = layer(fc(cat(norm(embedding(y_t)), norm(h_{t-1}))))      attending to x_0 .. x_t
        g_t = norm(x_t)                                                stands for h_t, which is not known yet
        logits of y_{t+1} = head(g_t)

    h is what the target's head reads, after its last norm. While drafting g_t is fed in place of h_t. h_{-1} = 0. The
    target's first token cannot be drafted: its state h_{t-1} comes with the pass that gives the token.

    Embedding and head are the target's and not saved: the embedding is shared, the head holds a copy of its rows for
    the draft vocabulary (of which it has no more than the most frequent tokens, as in FR-Spec, arXiv 2502.14856).

    shape       see `Shape`
    target      a causal LM of transformers
    token_ids   int64[draft_vocab_size], ascending: the draft's tokens
    """

    def __init__(self, shape: Shape, target: Any, token_ids: torch.Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.config = _layer_config(shape)
        self._embedding = (target.get_input_embeddings(),)  # a tuple: not a part, its weights are the target's
        self.embedding_norm = nn.RMSNorm(shape.embedding_size, eps=shape.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.fc = nn.Linear(shape.embedding_size + shape.hidden_size, shape.hidden_size, bias=False)
        self.body = LlamaModel(self.config)
        self.body.embed_tokens = None  # it is given embeddings
        self.head = _head(target, token_ids)
        self.register_buffer("token_ids", token_ids.to(self.head.weight.device), persistent=False)
        self.to(self.head.weight)

    def forward(
        self,
        input_ids: torch.Tensor,
        hidden_states: torch.Tensor,
        past_key_values: Any = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> EagleOutput:
        """input_ids int64[B, q], hidden_states [B, q, H]; attention_mask (B, 1, q, length) boolean or additive."""
        states = self.states(input_ids, hidden_states, past_key_values, attention_mask, position_ids)
        own = self.head(states)
        logits = own.new_full((*own.shape[:-1], self.shape.target_vocab_size), -torch.inf)
        logits[..., self.token_ids] = own
        return EagleOutput(logits, states)

    def states(
        self,
        input_ids: torch.Tensor,
        hidden_states: torch.Tensor,
        past_key_values: Any = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """g of the class's formula, [B, q, H]: `head` makes logits over the draft vocabulary of it."""
        found: torch.Tensor = self.body(
            inputs_embeds=self.fc(self.inputs(input_ids, hidden_states)),
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=past_key_values is not None,
            **{CACHE: past_key_values},
        ).last_hidden_state
        return found

    def inputs(self, input_ids: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        """What fc reads, [..., E + H]."""
        embedded = self._embedding[0](input_ids).to(hidden_states.dtype)  # a draft in training may be more precise
        return torch.cat([self.embedding_norm(embedded), self.hidden_norm(hidden_states)], -1)

    def trained(self) -> dict[str, torch.Tensor]:
        """The weights that are the draft's own, by name."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("head.")}

    def save(self, directory: Path, dtype: torch.dtype = torch.bfloat16, about: dict[str, Any] | None = None) -> None:
        """Write config.json, with `about` in it, and model.safetensors."""
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.to("cpu", dtype).contiguous() for name, value in self.trained().items()}
        save_file({**tensors, "token_ids": self.token_ids.cpu().int()}, directory / WEIGHTS)
        (directory / WEIGHTS).chmod(0o644)  # written for the owner alone
        config = {"model_type": EAGLE_TYPE, **asdict(self.shape), **(about or {})}
        (directory / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path, target: Any) -> EagleDraft:
        """For evaluation, on the target's device and in its dtype.

        Raises InputError if a file is missing or damaged, or if it was made for a target of another size.
        """
        shape = _saved_shape(directory / CONFIG)
        try:
            tensors = load_file(directory / WEIGHTS)
            token_ids = tensors.pop("token_ids").long()
        except FileNotFoundError:
            raise InputError(f"{directory}: no {WEIGHTS} there") from None
        except (SafetensorError, OSError, KeyError):
            raise InputError(f"{directory / WEIGHTS}: damaged or not of an EAGLE-style draft") from None
        wanted = shape_for(target, len(token_ids))
        for name in ("embedding_size", "hidden_size", "target_vocab_size"):
            if getattr(shape, name) != getattr(wanted, name):
                raise InputError(
                    f"{directory}: made for a target with {name} {getattr(shape, name)}, this one has "
                    f"{getattr(wanted, name)}"
                )
        draft = cls(shape, target, token_ids)
        draft.config._name_or_path = str(directory)
        missing = draft.trained().keys() ^ tensors.keys()
        if missing:
            raise InputError(f"{directory / WEIGHTS}: lacks or has too many tensors, as {min(missing)}")
        try:
            draft.load_state_dict(tensors, strict=False)
        except RuntimeError:
            raise InputError(f"{directory / WEIGHTS}: its tensors have other shapes than {CONFIG} says") from None
        draft.eval()
        return draft


def shape_for(target: Any, draft_vocab_size: int) -> Shape:
    """The sizes of a draft for a target. Raises InputError if it has no embedding or head."""
    config = target.config.get_text_config()
    embedding, head = target.get_input_embeddings(), target.get_output_embeddings()
    if embedding is None or head is None:
        raise InputError(f"{type(target).__name__}: has no token embedding or no head that a draft could share")
    vocab_size, hidden_size = head.weight.shape
    heads = config.num_attention_heads
    rope = getattr(config, "rope_parameters", None) or {}
    return Shape(
        embedding_size=embedding.weight.shape[1],
        hidden_size=hidden_size,
        intermediate_size=getattr(config, "intermediate_size", None) or 4 * hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or hidden_size // heads,
        max_position_embeddings=config.max_position_embeddings,
        rope_theta=float(rope.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0),
        rms_norm_eps=getattr(config, "rms_norm_eps", 1e-5),
        target_vocab_size=vocab_size,
        draft_vocab_size=min(draft_vocab_size, vocab_size),
    )


def _layer_config(shape: Shape) -> Any:
    return LlamaConfig(
        vocab_size=1,  # LlamaModel makes an embedding, which is thrown away
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_position_embeddings,
        rope_theta=shape.rope_theta,
        rms_norm_eps=shape.rms_norm_eps,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def _head(target: Any, token_ids: torch.Tensor) -> nn.Linear:
    """The target's head, for these tokens alone; not trained."""
    whole = target.get_output_embeddings()
    rows = token_ids.to(whole.weight.device)
    head = nn.Linear(whole.weight.shape[1], len(rows), bias=whole.bias is not None, device="meta")
    head.weight = nn.Parameter(whole.weight.detach()[rows], requires_grad=False)
    if whole.bias is not None:
        head.bias = nn.Parameter(whole.bias.detach()[rows], requires_grad=False)
    return head


def _saved_shape(path: Path) -> Shape:
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Shape(**{name: saved[name] for name in Shape.__dataclass_fields__})
    except FileNotFoundError:
        raise InputError(f"{path.parent}: no {CONFIG} there") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: not the config of an EAGLE-style draft") from None
