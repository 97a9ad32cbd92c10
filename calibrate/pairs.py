"""A draft and a target that share a vocabulary, loaded from a name, a directory or the hub."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from calibrate import loading
from calibrate.drafters import ngram, skip
from calibrate.drafters.base import Drafter
from calibrate.drafters.eagle import EagleDrafter
from calibrate.drafters.model import ModelDrafter
from calibrate.tiny import DRAFTS, MODELS
from traces.errors import InputError

TINY, SMOLLM2, EAGLE = "tiny", "smollm2", "eagle"
SMOLLM2_EAGLE = Path(__file__).parent / "data" / "eagle-smollm2"
DEFAULT_DRAFT = {TINY: DRAFTS[0], SMOLLM2: EAGLE}


@dataclass(frozen=True)
class Pair:
    """A target and a way to draft for it.

    target, tokenizer          of transformers, on `device` in `dtype`
    drafter                    see calibrate.drafters.base
    target_name, draft_name    as the user gave them
    vocab_size                 ids that both know: those from it on are padding and have probability 0 in both
    end_tokens                 ids that end a text
    """

    target: Any
    tokenizer: Any
    drafter: Drafter
    target_name: str
    draft_name: str
    device: torch.device
    dtype: torch.dtype
    vocab_size: int
    end_tokens: frozenset[int]

    @property
    def max_positions(self) -> int | None:
        """Tokens that the target's positions reach; None if it does not say."""
        return getattr(self.target.config, "max_position_embeddings", None)


def load_pair(
    target: str = TINY,
    draft: str | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    progress: Callable[[str], None] = lambda _: None,
) -> Pair:
    """Load and check a pair.

    target   `tiny`, `smollm2`, a directory in the layout of Hugging Face or a hub id
    draft    `draft-s`, `draft-m` (of tiny), `eagle` (of smollm2, or a directory that holds one), `skip:I,J,...`,
             `ngram`, `ngram:n=3`, a directory or a hub id; None: the default of a named target
    device   auto (a GPU if there is one), cpu, cuda, cuda:1, mps
    dtype    auto (float32 on a CPU, otherwise bfloat16), float32, bfloat16, float16

    Raises InputError in one line: unknown id, no network, missing file, no such device, two vocabularies.
    """
    if draft is None:
        if target not in DEFAULT_DRAFT:
            raise InputError("--draft is missing: a model id, a directory, skip:14,16,18 or ngram")
        draft = DEFAULT_DRAFT[target]
    place = loading.device(device)
    kind = loading.dtype(dtype, place)
    source = _source(target, progress)
    tokenizer = loading.tokenizer(source)
    model = loading.causal_lm(source, place, kind, progress)
    vocab_size = common_vocabulary(tokenizer, model.config.get_text_config().vocab_size)
    drafter = _drafter(draft, target, model, tokenizer, vocab_size, progress)
    return make_pair(model, tokenizer, drafter, vocab_size, target_name=target, draft_name=draft)


def make_pair(
    target: Any, tokenizer: Any, drafter: Drafter, vocab_size: int, *, target_name: str, draft_name: str
) -> Pair:
    """A pair of what is loaded already; the vocabularies are taken to be one."""
    weight = next(iter(target.parameters()))
    ends = loading.end_tokens(target, tokenizer)
    return Pair(
        target.eval(), tokenizer, drafter, target_name, draft_name, weight.device, weight.dtype, vocab_size, ends
    )


def common_vocabulary(tokenizer: Any, *widths: int) -> int:
    """Ids of the tokenizer, 0 up to the largest; models of `widths` logits may have more, which are padding.

    Raises InputError if one has fewer.
    """
    size = max(tokenizer.get_vocab().values()) + 1
    if min(widths) < size:
        raise InputError(
            f"the tokenizer has ids up to {size - 1}, a model only {min(widths)} logits: they do not belong"
        )
    return int(size)


def check_vocabularies(target: Any, draft: Any, target_name: str, draft_name: str) -> None:
    """Raises InputError unless both tokenizers give every token the same id."""
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours == theirs:
        return
    differing = sorted((t for t in ours.keys() | theirs.keys() if ours.get(t) != theirs.get(t)), key=repr)
    example = differing[0]
    raise InputError(
        f"draft {draft_name} and target {target_name} have different vocabularies: {len(differing)} tokens differ, "
        f"as {example!r}, which is {theirs.get(example, 'not there')} in the draft and "
        f"{ours.get(example, 'not there')} in the target; take two models of one family, skip:I,J or ngram"
    )


def _source(name: str, progress: Callable[[str], None]) -> str:
    if name == TINY:
        return str(MODELS / "target")
    if name == SMOLLM2:
        from calibrate import smollm2

        return str(smollm2.directory(progress=progress))
    return name


def _drafter(
    draft: str, target_name: str, target: Any, tokenizer: Any, vocab_size: int, progress: Callable[[str], None]
) -> Drafter:
    if draft.startswith(skip.PREFIX):
        return skip.skip_drafter(target, draft, vocab_size)
    if draft.partition(":")[0] == ngram.NAME:
        return ngram.ngram_drafter(draft, vocab_size, target.device)
    if target_name == TINY and draft in DRAFTS:
        source = str(MODELS / draft)
    elif target_name == SMOLLM2 and draft == EAGLE:
        source = str(SMOLLM2_EAGLE)
    else:
        source = _source(draft, progress)
    if loading.holds_eagle(source):
        from calibrate.eagle import EagleDraft

        return EagleDrafter(EagleDraft.load(Path(source), target), draft, vocab_size)
    check_vocabularies(tokenizer, loading.tokenizer(source), target_name, draft)
    model = loading.causal_lm(source, target.device, target.dtype, progress)
    common_vocabulary(tokenizer, model.config.get_text_config().vocab_size)
    return ModelDrafter(model, draft, vocab_size)
