"""The KV cache of a model runner: a fixed number of slots, each with room for one sequence."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Cache


class KVSlab(Cache):  # type: ignore[misc]  # transformers is not typed where mypy runs
    """Keys and values of `max_num_seqs` slots x `max_model_len` positions, behind transformers' cache argument.

    Per layer one tensor of keys and one of values, (slots, KV heads, positions, head size), made when the layer first
    writes, so that any architecture fits. Slot position = token position; which positions are valid is known to the
    caller alone, who makes the mask: what lies beyond a sequence's length is overwritten later, so that lowering the
    length is all there is to a rollback.
    """

    is_compileable = False

    def __init__(self, max_num_seqs: int, max_model_len: int) -> None:
        # the base class's own constructor differs between versions and prepares storage that is not used here
        self.layers: list[Any] = []
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.keys: dict[int, torch.Tensor] = {}
        self.values: dict[int, torch.Tensor] = {}
        self._slots = torch.zeros(1, dtype=torch.long)
        self._positions = torch.zeros(1, 1, dtype=torch.long)
        self._run: slice | None = None
        self._end = 0

    def prepare(self, slots: torch.Tensor, context: torch.Tensor, query: int, device: torch.device) -> torch.Tensor:
        """Say where the next pass writes and what it reads; returns its positions, int64[B, q] on `device`.

        slots, context: int64[B] on the CPU; row b writes positions context[b] .. context[b] + query - 1 of slots[b].
        """
        first, rows = int(slots[0]), len(slots)
        in_order = bool((slots == torch.arange(first, first + rows)).all())
        self._run = slice(first, first + rows) if in_order else None
        self._end = int(context.max()) + query
        self._slots = slots.to(device)
        self._positions = (context[:, None] + torch.arange(query)).to(device)
        return self._positions

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values, (B, KV heads, q, size); return those of the rows from position 0 on."""
        if layer_idx not in self.keys:
            self.keys[layer_idx] = self._empty(key_states)
            self.values[layer_idx] = self._empty(value_states)
        return self._store(self.keys[layer_idx], key_states), self._store(self.values[layer_idx], value_states)

    def _empty(self, like: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = like.shape
        # zeros, not empty: masked positions still enter 0 * value, and NaN would come through
        return like.new_zeros((self.max_num_seqs, heads, self.max_model_len, size))

    def _store(self, slab: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        # rows of one length have no faster path of their own: they must cost what ragged ones do, or measuring misleads
        slab[self._slots[:, None], :, self._positions] = new.transpose(1, 2)
        if self._run is not None:
            return slab[self._run, :, : self._end]  # a view: no copy of the cache
        return slab[self._slots, :, : self._end]

    def copy(self, source: int, to: torch.Tensor, length: int) -> None:
        """The first `length` keys and values of one slot into others, int64[n]."""
        for slab in (*self.keys.values(), *self.values.values()):
            slab[to.to(slab.device), :, :length] = slab[source, :, :length].clone()

    @property
    def bytes_per_token(self) -> int:
        """Of keys and values of all layers that have written."""
        slabs = (*self.keys.values(), *self.values.values())
        return sum(slab.shape[1] * slab.shape[3] * slab.element_size() for slab in slabs)

    # What models of different versions ask a cache for when they make masks; ours is given to them ready.
    def __len__(self) -> int:
        return len(self.keys)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions before the pass; only models that are not told their positions use it."""
        return self._end - int(self._positions.shape[1])

    def get_mask_sizes(self, query: Any, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys."""
        return self._end, 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Where the queries start."""
        return self.get_seq_length()

    def get_max_cache_shape(self, layer_idx: int = 0) -> int:
        """Positions of a slot."""
        return self.max_model_len

    get_max_length = get_max_cache_shape
