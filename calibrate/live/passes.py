"""The target's passes: packed where the model allows it, otherwise padded on the right, decoding rows apart."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.live.packed import PackedPasses, supports
from calibrate.live.rows import Rows, padded_index, ragged_index
from calibrate.runner import ModelRunner, PassOutput


class Passes(Protocol):
    """Runs the target over ragged rows."""

    def forward(self, rows: Rows, wanted: NDArray[np.int64] | None) -> PassOutput:
        """logits float32[W, V] of the tokens `wanted` (places among the N; None: all), hidden [N, H]."""


class PaddedPasses:
    """One pass for each run of rows that are alike, padded to its longest."""

    def __init__(self, runner: ModelRunner) -> None:
        self.runner = runner

    def forward(self, rows: Rows, wanted: NDArray[np.int64] | None) -> PassOutput:
        logits, hidden, first = [], [], 0
        for size in rows.together:
            part = slice(first, first + size)
            counts = rows.counts[part]
            width = int(counts.max())
            places = torch.from_numpy(padded_index(rows.first[part], counts, width)).to(rows.tokens.device)
            output = self.runner.forward(
                rows.tokens[places], torch.from_numpy(rows.slots[part]), torch.from_numpy(rows.context[part])
            )
            real = torch.from_numpy(ragged_index(counts, width)).to(output.logits.device)
            logits.append(output.logits.flatten(0, 1)[real])
            hidden.append(output.hidden.flatten(0, 1)[real])
            first += size
        found = torch.cat(logits)
        if wanted is not None:
            found = found[torch.from_numpy(wanted).to(found.device)]
        return PassOutput(found, torch.cat(hidden))


def passes_for(runner: ModelRunner) -> Passes:
    return PackedPasses(runner) if supports(runner) else PaddedPasses(runner)
