"""The text of every request: its prompt and what has been written after it, whatever slot it has or has lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import Ints


class Texts:
    """Tokens of n requests in one array, so that steps gather and append rows without a loop.

    prompts  token ids, one at least each
    limits   int64[n], most tokens that are written after each
    """

    def __init__(self, prompts: Sequence[Sequence[int]], limits: Ints) -> None:
        self.prompt_tokens = np.array([len(ids) for ids in prompts], np.int64)
        ends = np.cumsum(self.prompt_tokens + limits)
        self._start = ends - self.prompt_tokens - limits
        self._tokens = np.zeros(int(ends[-1]), np.int64)
        self.length = self.prompt_tokens.copy()  # prompt and output
        self.ended = np.zeros(len(prompts), np.bool_)  # by an end token
        for start, ids in zip(self._start.tolist(), prompts, strict=True):
            self._tokens[start : start + len(ids)] = ids

    def __len__(self) -> int:
        return len(self.length)

    def rows(self, requests: Ints, first: Ints, width: int) -> NDArray[np.int64]:
        """`width` tokens of each request from its position first[i] on, int64[B, width]; beyond the text any token."""
        places = (self._start[requests] + first)[:, None] + np.arange(width)
        return self._tokens.take(places, mode="clip")

    def newest(self, requests: Ints) -> NDArray[np.int64]:
        """The last token of each, int64[B]."""
        found: NDArray[np.int64] = self._tokens[self._start[requests] + self.length[requests] - 1]
        return found

    def chunk(self, request: int, first: int, count: int) -> NDArray[np.int64]:
        """`count` tokens of one request from position `first` on."""
        start = int(self._start[request]) + first
        return self._tokens[start : start + count]

    def append(self, requests: Ints, new: NDArray[np.int64], counts: Ints, ended: NDArray[np.bool_]) -> None:
        """new[i, : counts[i]] becomes text of requests[i]; `ended` says whose text that ends."""
        columns = np.arange(new.shape[1])
        written = columns < counts[:, None]
        places = (self._start[requests] + self.length[requests])[:, None] + columns
        self._tokens[places[written]] = new[written]
        self.length[requests] += counts
        self.ended[requests] |= ended

    def output(self, request: int, count: int | None = None) -> list[int]:
        """What has been written after the prompt; its first `count` tokens, if given."""
        written = int(self.length[request] - self.prompt_tokens[request])
        first = int(self.prompt_tokens[request])
        found: list[int] = self.chunk(request, first, written if count is None else min(count, written)).tolist()
        return found
