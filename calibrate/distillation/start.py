"""A draft to start from: the best linear guess of the target's next state, and what the layer is to add still zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from calibrate.distillation.text import Text
from calibrate.eagle import EagleDraft, shape_for

RIDGE = 0.01
DOUBT = 0.6
"""Least squares shrinks what it cannot know, and the last norm undoes that: its logits are too sure of themselves."""


def new_draft(target: Any, texts: Sequence[Text], mass: torch.Tensor, draft_vocab_size: int, seed: int) -> EagleDraft:
    """An EAGLE-style draft in float32 over the tokens of largest mass float32[V].

    fc is fitted by least squares to the texts' states, the layer's two outputs are 0 and the rest of it is random. From
    there a tenth of the text is enough for what random weights learn (smollm2: acceptance .31 before the first step).
    """
    weight = target.get_output_embeddings().weight
    shape = shape_for(target, draft_vocab_size)
    token_ids = mass[: shape.target_vocab_size].topk(shape.draft_vocab_size).indices.sort().values
    torch.manual_seed(seed)
    draft = EagleDraft(shape, target, token_ids.to(weight.device))
    draft.float()
    with torch.no_grad():
        scale = _scale(texts).to(weight.device)
        draft.fc.weight.copy_(_least_squares(draft, texts, scale))
        draft.body.norm.weight.copy_(DOUBT * scale)
        layer = draft.body.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    return draft


def _scale(texts: Sequence[Text]) -> torch.Tensor:
    """Root mean square of the states in each dimension, float32[H]."""
    total = torch.stack([text.hidden.float().square().sum(0) for text in texts]).sum(0)
    return (total / sum(len(text.hidden) for text in texts)).sqrt()


def _least_squares(draft: EagleDraft, texts: Sequence[Text], scale: torch.Tensor) -> torch.Tensor:
    """[H, E + H]: what fc has to be for states in units of scale, over all that is drafted in the answers."""
    width = draft.fc.in_features
    normal, right, count = torch.zeros(width, width).to(scale), torch.zeros(width, len(scale)).to(scale), 0
    for text in texts:
        before, states = text.hidden[text.prompt - 1 : -1].to(scale), text.hidden[text.prompt :].to(scale)
        inputs = draft.inputs(text.tokens[text.prompt : -1].to(scale.device), before)
        normal += inputs.T @ inputs
        right += inputs.T @ (states / scale)
        count += len(states)
    normal += RIDGE * count * torch.eye(width).to(scale)
    return torch.linalg.solve(normal, right).T
