"""The pool of KV blocks of one engine, counted, with an optional prefix cache over the trace's blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from traces.errors import InputError


class KVCache:
    """`free` blocks can be taken: empty ones and, once nobody uses them, cached ones (least recently used first).

    num_blocks    blocks in the pool
    block_size    tokens per block
    prefix_tokens tokens per block of the trace's content hashes, or 0 for no prefix caching; raises InputError unless
                  it is a multiple of block_size
    """

    def __init__(self, num_blocks: int, block_size: int, prefix_tokens: int = 0) -> None:
        if num_blocks < 1 or block_size < 1:
            raise InputError(f"KV pool of {num_blocks} blocks x {block_size} tokens: both must be at least 1")
        if prefix_tokens % block_size:
            raise InputError(
                f"block size {block_size} does not divide the trace's prefix blocks of {prefix_tokens} tokens"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_tokens = prefix_tokens
        self.free = num_blocks
        self._span = prefix_tokens // block_size  # KV blocks per cached block
        self._users: dict[int, int] = {}  # cached block -> sequences that use it
        self._idle: OrderedDict[int, None] = OrderedDict()  # cached blocks without users, least recently used first

    @property
    def used(self) -> int:
        return self.num_blocks - self.free

    @property
    def capacity_tokens(self) -> int:
        return self.num_blocks * self.block_size

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> None:
        """Take free blocks, evicting idle cached ones when the empty ones run out."""
        assert 0 <= blocks <= self.free, "the scheduler takes no more than is free"
        self.free -= blocks
        while self._idle and self.free < len(self._idle) * self._span:
            evicted, _ = self._idle.popitem(last=False)
            del self._users[evicted]

    def give_back(self, blocks: int) -> None:
        self.free += blocks
        assert self.free <= self.num_blocks, "more KV blocks given back than taken"

    # Prefix caching. A cached block in use is counted once in `used`, however many sequences share it.

    def match(self, ids: Iterable[int], known_tokens: int) -> list[int]:
        """The leading ids that are cached. The last known token is never among them: its pass yields the next one."""
        if not self.prefix_tokens:
            return []
        matched: list[int] = []
        for block in ids:
            if block not in self._users or (len(matched) + 1) * self.prefix_tokens >= known_tokens:
                break
            matched.append(block)
        return matched

    def idle_blocks(self, matched: Iterable[int]) -> int:
        """KV blocks of `matched` that count as free until `share` takes them into use."""
        return sum(block in self._idle for block in matched) * self._span

    def share(self, matched: Iterable[int]) -> None:
        """A sequence starts to use cached blocks."""
        for block in matched:
            if self._users[block] == 0:
                del self._idle[block]
                self.free -= self._span
            self._users[block] += 1

    def publish(self, block: int) -> bool:
        """Turn a sequence's own computed block into a cached one that it uses. False if an equal one is cached."""
        if block in self._users:
            return False
        self._users[block] = 1
        return True

    def unshare(self, blocks: Iterable[int]) -> None:
        """A sequence stops using cached blocks; the deepest become the first to be evicted."""
        for block in reversed(list(blocks)):
            self._users[block] -= 1
            if self._users[block] == 0:
                self._idle[block] = None
                self.free += self._span
