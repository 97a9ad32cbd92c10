"""Signals of one live step, computed when a policy asks for them. See sim.control.executor.Signals."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.signals import Sampling, entropy, js_distance, kl_divergence, of_token, signal_probabilities
from sim.control.batch import Ints

Values = NDArray[np.float32]


class LiveSignals:
    """float32[B, depth] in the order of the batch; 0 where nothing was drafted, and for the target's where nothing was
    verified. As in recorded windows they are of what is sampled from, and of the softmax when greedy.

    back   int64[B]: place of each sequence of the batch among the executor's rows
    depth  longest draft that was planned
    """

    def __init__(self, sampling: Sampling, back: Ints, depth: int) -> None:
        self.sampling = sampling
        self._back = back
        self._depth = depth
        self._logits: list[torch.Tensor] = []  # of each depth, [B, V]
        self._tokens: list[torch.Tensor] = []
        self._columns: dict[str, list[Values]] = {"draft_entropy": [], "draft_prob": []}
        self._verified = np.zeros(len(back), np.int64)
        self._target: torch.Tensor | None = None
        self._both: tuple[torch.Tensor, torch.Tensor] | None = None

    def drafted(self, logits: torch.Tensor, tokens: torch.Tensor) -> None:
        """One more draft token of each row: the logits [B, V] it was chosen from, and itself, int64[B]."""
        self._logits.append(logits)
        self._tokens.append(tokens)

    def verified(self, target: torch.Tensor, counts: Ints) -> None:
        """Target logits [sum(counts + 1), V], row after row, of the newest token and counts[b] draft tokens each."""
        self._target, self._verified = target, counts

    @property
    def draft_entropy(self) -> Values:
        return self._of_draft("draft_entropy")

    @property
    def draft_prob(self) -> Values:
        return self._of_draft("draft_prob")

    def _of_draft(self, name: str) -> Values:
        """A stop rule asks after every token: only new columns are computed."""
        columns = self._columns[name]
        for logits, tokens in zip(self._logits[len(columns) :], self._tokens[len(columns) :], strict=True):
            q = signal_probabilities(logits, self.sampling)
            found = entropy(q) if name == "draft_entropy" else of_token(q, tokens)
            columns.append(found.cpu().numpy()[self._back])
        values = np.zeros((len(self._back), self._depth), np.float32)
        if columns:
            values[:, : len(columns)] = np.stack(columns, 1)
        return values

    @property
    def kld(self) -> Values:
        return self._spread(kl_divergence(*self._laws()))

    @property
    def jsd(self) -> Values:
        return self._spread(js_distance(*self._laws()))

    @property
    def target_entropy(self) -> Values:
        return self._spread(entropy(self._laws()[0]))

    @property
    def target_prob(self) -> Values:
        p, _ = self._laws()
        if not len(p):
            return self._spread(p[:, 0])
        row, column = self._places()
        return self._spread(of_token(p, torch.stack(self._tokens)[column, row]))

    def _places(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Row and depth of each verified draft token, row after row."""
        counts, device = self._verified, self._tokens[0].device
        row = np.repeat(np.arange(len(counts)), counts)
        column = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        return torch.from_numpy(row).to(device), torch.from_numpy(column).to(device)

    def _laws(self) -> tuple[torch.Tensor, torch.Tensor]:
        """p and q of all verified draft tokens, row after row: [n, V] each."""
        if self._both is None:
            counts = self._verified
            if self._target is None or not counts.any():
                nothing = torch.zeros(0, 1)
                return nothing, nothing
            row, column = self._places()
            q = torch.stack(self._logits)[column, row]
            # each row has one more line of the target, the bonus token's
            p = self._target[torch.arange(len(row), device=row.device) + row]
            self._both = signal_probabilities(p, self.sampling), signal_probabilities(q, self.sampling)
        return self._both

    def _spread(self, found: torch.Tensor) -> Values:
        values = np.zeros((len(self._back), self._depth), np.float32)
        values[np.arange(self._depth) < self._verified[:, None]] = found.cpu().numpy()
        return values[self._back]
