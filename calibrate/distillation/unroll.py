"""Many drafting chains at once: one begins at each position of a text and from there reads its own hidden states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers import DynamicCache

from calibrate.distillation.text import Text
from calibrate.eagle import EagleDraft


@dataclass(frozen=True)
class Batch:
    """Texts side by side, padded on the right, as the draft reads them.

    tokens     int64[B, L], y_t
    before     [B, L, H], the target's states h_{t-1}; 0 at t = 0
    states     [B, L, H], h_t, from which the target's law of y_{t+1} follows
    drafted    bool[B, L], where a draft may predict y_{t+1}: in the answer, from the target's own first token on
    """

    tokens: torch.Tensor
    before: torch.Tensor
    states: torch.Tensor
    drafted: torch.Tensor

    @property
    def first(self) -> int:
        """The first position with anything to draft."""
        return int(self.drafted.any(0).nonzero()[0])


def batch(texts: Sequence[Text], draft: EagleDraft) -> Batch:
    """Texts on the draft's device, in its dtype. The last token of each has no state and is left out."""
    weight = draft.fc.weight
    pad = torch.nn.utils.rnn.pad_sequence
    states = pad([text.hidden for text in texts], batch_first=True).to(weight)
    drafted = [torch.arange(len(text.hidden)) >= text.prompt for text in texts]
    return Batch(
        tokens=pad([text.tokens[:-1] for text in texts], batch_first=True).to(weight.device),
        before=torch.cat([torch.zeros_like(states[:, :1]), states[:, :-1]], 1),
        states=states,
        drafted=pad(drafted, batch_first=True).to(weight.device),
    )


def can_be_drafted(text: Text) -> bool:
    """Whether the answer goes on after the target's first token."""
    return len(text.hidden) > text.prompt


def unroll(draft: EagleDraft, given: Batch, depths: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each depth d: the draft's states [N, H], the target's [N, H] and where they are, int64[N, 2] (row, position).

    The chain that began at s (its first pass read h_{s-1}) is at depth d when it reads y_{s+d} with its own state of
    s+d-1. It sees what it would see while drafting: up to s the keys of passes over the target's states, after s its
    own. All chains of one depth are one pass (the training-time test of EAGLE-3, arXiv 2503.01840).
    """
    first, cache = given.first, DynamicCache()
    positions = torch.arange(given.tokens.shape[1], device=given.tokens.device)
    before, drafted = given.before, given.drafted
    for depth in range(depths):
        queries = positions[first:] if depth else positions  # after depth 0 without the prompts, whose keys are there
        own = draft.states(
            given.tokens[:, queries],
            before[:, -len(queries) :],
            past_key_values=cache,
            attention_mask=_mask(queries, positions, first, depth).to(given.states.dtype),
            position_ids=queries[None],
        )
        drafted = drafted & given.drafted.roll(depth, 1)
        rows, places = drafted.nonzero(as_tuple=True)
        yield own[rows, places - queries[0]], given.states[rows, places], torch.stack([rows, places], 1)
        before = torch.cat([given.before[:, :1], own[:, :-1]], 1)


def _mask(queries: torch.Tensor, positions: torch.Tensor, first: int, depth: int) -> torch.Tensor:
    """Additive (1, 1, queries, keys). Keys: those of depth 0, of all positions, then of depths 1 to d from `first` on.

    A query at t and depth d sees of depth 0 the keys up to t - d and of each depth e > 0 the one at t - d + e.
    """
    last = queries[:, None] - depth
    seen = [positions <= last, *(positions[first:] == last + other for other in range(1, depth + 1))]
    return torch.where(torch.cat(seen, 1), 0.0, torch.finfo(torch.float16).min)[None, None]
