"""Passes without padding: the new tokens of all sequences in one line, each attending to its own sequence.

Drafts of any length are verified and prompts are read in the same pass, and every matrix product sees the real tokens
alone; only attention is computed side by side, padded to the longest of rows that are alike. It works for models whose
attention goes through transformers' attention interface and reads what the cache hands back, which is most of them;
`supports` finds out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from calibrate import attention, bucket
from calibrate.live.rows import Rows, padded_index, ragged_index
from calibrate.runner import ModelRunner, PassOutput
from calibrate.slab import KVSlab

TOLERANCE = 0.02
"""Share of the range of the logits by which a packed pass may differ from a padded one: rounding of 16 bits."""


class PackedSlab(KVSlab):
    """The keys and values of another slab, written token by token and handed to attention whole."""

    def __init__(self, slab: KVSlab) -> None:
        super().__init__(slab.max_num_seqs, slab.max_model_len)
        self.keys, self.values = slab.keys, slab.values
        self._lines: dict[tuple[int, bool], torch.Tensor] = {}  # the slabs seen as lines of one head of one position
        self._places: dict[int, torch.Tensor] = {}  # number of KV heads -> line of each head of each new token

    def place(self, slots: NDArray[np.int64], positions: NDArray[np.int64], device: torch.device) -> None:
        """Where each new token goes, int64[N] each."""
        self._where = slots, positions, device
        self._places = {}

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values (1, KV heads, N, size); returns the slabs, (slots, KV heads, positions, size)."""
        keys, values = self.keys[layer_idx], self.values[layer_idx]
        heads = keys.shape[1]
        places = self._places.get(heads)
        if places is None:
            slots, positions, device = self._where
            lines = (slots[:, None] * heads + np.arange(heads)) * self.max_model_len + positions[:, None]
            places = self._places[heads] = torch.from_numpy(lines.ravel()).to(device)
        for slab, new, which in ((keys, key_states, True), (values, value_states, False)):
            flat = self._lines.get((layer_idx, which))
            if flat is None:
                flat = self._lines[layer_idx, which] = slab.view(-1, slab.shape[3])
            # in this order the new ones lie in memory as the projection made them: no copy
            flat.index_copy_(0, places, new.transpose(1, 2).reshape(-1, slab.shape[3]))
        return keys, values


@dataclass
class Group:
    """Rows whose attention is computed side by side: B rows of up to q tokens.

    tokens  the group's part of the N tokens; None: all
    slots   of the rows, a slice where they lie next to each other: then nothing is copied
    end     positions of the cache that are read
    index   int64[B * q] place of each query among the group's tokens; None if all rows have q
    back    int64[n] place of each token among the B * q queries; None if all rows have q
    masks   additive (B, 1, q, end) under 1, and repeated for query heads that share keys; None if all is seen
    """

    rows: int
    query: int
    tokens: slice | None
    slots: slice | torch.Tensor
    end: int
    index: torch.Tensor | None
    back: torch.Tensor | None
    masks: dict[int, torch.Tensor] | None

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> Any:
        """query (heads, N, size), key and value (slots, KV heads, positions, size) -> (n, heads, size)."""
        heads, _, size = query.shape
        own = query if self.tokens is None else query[:, self.tokens]
        if self.index is not None:
            own = own[:, self.index]
        shared = heads // key.shape[1]
        # query heads that share keys become rows of one head, as in calibrate.attention
        if self.query == 1:
            own = own.transpose(0, 1).reshape(self.rows, heads // shared, shared, size)
        else:
            own = own.view(heads, self.rows, self.query, size).transpose(0, 1)
            own = own.reshape(self.rows, heads // shared, shared * self.query, size)
        found = functional.scaled_dot_product_attention(
            own,
            key[self.slots, :, : self.end],
            value[self.slots, :, : self.end],
            attn_mask=self._mask(shared),
            scale=scaling,
        )
        if self.query == 1:
            return found.reshape(self.rows, heads, -1)
        found = found.reshape(self.rows, heads, self.query, -1).transpose(1, 2).flatten(0, 1)
        return found if self.back is None else found[self.back]

    def _mask(self, shared: int) -> torch.Tensor | None:
        if self.masks is None:
            return None
        if shared not in self.masks:
            self.masks[shared] = self.masks[1].repeat(1, 1, shared, 1)
        return self.masks[shared]


class PackedPasses:
    """One pass over ragged rows; see `Rows`. The last slot of the runner is scratch: tokens that fill up go there."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner
        self.slab = PackedSlab(runner.slab)
        self._scratch = runner.max_num_seqs - 1
        self._nothing = torch.zeros(1, 1, 1, 1, dtype=runner.dtype, device=runner.device)
        self._lowest = torch.finfo(runner.dtype).min

    def forward(self, rows: Rows, wanted: np.ndarray | None) -> PassOutput:
        """logits float32[W, V] of the tokens `wanted` (places among the N; None: all), hidden [N, H]."""
        runner, device = self.runner, self.runner.device
        tokens, positions, slots = rows.tokens, rows.positions, rows.slot_of_token
        count = len(positions)
        more = bucket.padded(1, count) - count if runner.pads else 0
        if more:
            tokens = functional.pad(tokens, (0, more))
            positions = np.concatenate([positions, np.arange(more)])
            slots = np.concatenate([slots, np.full(more, self._scratch)])
        self.slab.place(slots, positions, device)
        placed = torch.from_numpy(positions).to(device)
        groups = list(self._groups(rows, more))
        chosen = None
        if more and wanted is None:
            wanted = np.arange(count)
        if wanted is not None:
            chosen = torch.from_numpy(wanted).to(device)
        with _packed(groups, more), torch.inference_mode():
            found = runner.run_packed(tokens[None].to(device), placed[None], self._nothing, self.slab, chosen)
        return PassOutput(found.logits[0], found.hidden[0, :count])

    def _groups(self, rows: Rows, more: int) -> Iterator[Group]:
        device, first = self.runner.device, 0
        for size in rows.together:
            part = slice(first, first + size)
            slots, context, counts = rows.slots[part], rows.context[part], rows.counts[part]
            start, total, query = int(rows.first[first]), int(counts.sum()), int(counts.max())
            end = int((context + counts).max())
            even = total == size * query
            masks = None
            if query > 1 or int((context + counts).min()) < end:
                columns = np.minimum(np.arange(query), counts[:, None] - 1)
                last_seen = torch.from_numpy(context[:, None] + columns).to(device)
                mask = torch.zeros((size, 1, query, end), dtype=self.runner.dtype, device=device)
                mask.masked_fill_(torch.arange(end, device=device) > last_seen[:, None, :, None], self._lowest)
                masks = {1: mask}
            index = back = None
            if not even:
                relative = np.cumsum(counts) - counts
                index = torch.from_numpy(padded_index(relative, counts, query).ravel()).to(device)
                back = torch.from_numpy(ragged_index(counts, query)).to(device)
            in_order = bool((np.diff(slots) == 1).all())
            where = slice(int(slots[0]), int(slots[0]) + size) if in_order else torch.from_numpy(slots).to(device)
            part_of = None if len(rows.together) == 1 and not more else slice(start, start + total)
            yield Group(size, query, part_of, where, end, index, back, masks)
            first += size


def supports(runner: ModelRunner) -> bool:
    """Whether packed passes give what padded ones do: three tokens and two in two slots, one after the other way."""
    if not attention.is_grouped(runner.model) or runner.max_num_seqs < 2 or runner.max_model_len < 4:
        return False
    tokens = torch.arange(6).reshape(2, 3) % runner.vocab_size
    slots, zero = torch.tensor([0, 1]), torch.zeros(2, dtype=torch.long)
    expected = runner.forward(tokens, slots, zero).logits
    rows = Rows(tokens.flatten()[:5], np.array([0, 1]), np.zeros(2, np.int64), np.array([3, 2]), (2,))
    try:
        found = PackedPasses(runner).forward(rows, None).logits
    except Exception:  # whatever a model does with a cache and a mask that it does not expect
        return False
    expected = torch.cat([expected[0], expected[1, :2]])
    spread = float(expected.max() - expected.min())
    return found.shape == expected.shape and float((found - expected).abs().max()) <= TOLERANCE * spread


@contextmanager
def _packed(groups: list[Group], more: int) -> Iterator[None]:
    """Within, attention of the models that `use_grouped_attention` was called for takes its rows from `groups`."""

    def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> torch.Tensor:
        query = query[0]
        if len(groups) == 1 and not more:
            return groups[0].attend(query, key, value, scaling)[None]
        parts = [group.attend(query, key, value, scaling) for group in groups]
        if more:  # tokens that only fill up attend to nothing
            parts.append(parts[0].new_zeros((more, *parts[0].shape[1:])))
        return torch.cat(parts)[None]

    attention.packed_attention = attend
    try:
        yield
    finally:
        attention.packed_attention = None
