"""One pass over ragged rows in any slots: the same logits packed and padded, whatever stands where."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.live.packed import PackedPasses, supports
    from calibrate.live.passes import PaddedPasses
    from calibrate.live.rows import Rows, alike
    from calibrate.runner import ModelRunner

    from .random_pairs import LETTERS, gpt2, llama


def rows(slots: list[int], context: list[int], counts: list[int], together: tuple[int, ...], seed: int = 0) -> Rows:
    tokens = torch.from_numpy(np.random.default_rng(seed).integers(0, LETTERS, sum(counts)))
    return Rows(tokens, np.array(slots), np.array(context), np.array(counts), together)


READ = rows([4, 0, 2, 1], [0, 0, 0, 0], [9, 8, 3, 2], (2, 2))
"""Prompts of 9, 8, 3 and 2 tokens; then three sequences verify 0, 2 and 1 drafts while slot 4 goes on reading."""
VERIFY = rows([0, 1, 2, 4], [8, 2, 3, 9], [1, 3, 2, 5], (3, 1), seed=1)


@pytest.mark.parametrize("make", [llama, gpt2])
@pytest.mark.parametrize("pads", [False, True])
def test_packed_and_padded_passes_say_the_same(make: Any, pads: bool) -> None:
    """22 tokens, then 11, which may be filled up to 16."""
    found = []
    for kind in (PackedPasses, PaddedPasses):
        runner = ModelRunner(make(0), max_num_seqs=6, max_model_len=32)
        runner.pads = pads
        passes = kind(runner)
        passes.forward(READ, None)
        output = passes.forward(VERIFY, np.array([0, 1, 2, 3, 5, 10]))
        found.append((output.logits, output.hidden))
    for packed, padded in zip(*found, strict=True):
        torch.testing.assert_close(packed, padded, atol=1e-4, rtol=1e-4)


def test_attention_of_another_kind_is_not_packed() -> None:
    """Eager attention does not go through the interface that packing needs."""
    model = llama(0)
    model.config._attn_implementation = "eager"
    assert not supports(ModelRunner(model, max_num_seqs=4, max_model_len=16))


def test_rows_of_similar_length_stand_together() -> None:
    """Longest first; a row starts a new run once it is less than half the first of its run: 100, 60 | 40, 20 | 3."""
    order, together = alike(np.array([20, 100, 3, 60, 40]))
    assert order.tolist() == [1, 3, 4, 0, 2]
    assert together == (2, 2, 1)
