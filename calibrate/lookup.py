"""Cost of drafting without a model: looking up in the text what followed before (n-gram drafts)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import nnls

from calibrate.drafters.base import Drafter
from calibrate.host import SIZES
from calibrate.timing import Timer
from sim.replay.cost import ForwardCost
from sim.replay.profile import Model

SHORTEST_S = 1e-7
"""A pass costs something; a clock that read 0 did not resolve it."""


def lookup_cost(
    drafter: Drafter,
    vocab_size: int,
    device: torch.device,
    *,
    max_num_seqs: int,
    max_model_len: int,
    k: int = 4,
    timer: Timer | None = None,
) -> tuple[ForwardCost, float]:
    """Seconds of drafting k tokens for each sequence: base + per sequence + per token of text; median error, percent.

    Timed over random text, in which the last tokens stand late if at all: what a look-up costs at most. `k` of the
    proposed tokens are taken, the work after the first of which is small.
    """
    timer = timer or Timer.of(device, budget_s=0.3)
    session = drafter.session(max_num_seqs, max_model_len)
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(vocab_size, (max_model_len - 1,), generator=generator)
    sizes = [size for size in SIZES if size < max_num_seqs] + [max_num_seqs]
    seconds, terms = [], []
    for length in sorted({max_model_len // 8, max_model_len // 2, max_model_len - 1}):
        for slot in range(max_num_seqs):
            session.reset(slot)
            session.fill(slot, text[: length - 1])
        for size in sizes:
            measured = timer.measure(_draft(session, size, length, text[length - 1 : length], k))
            seconds.append(measured.seconds)
            terms.append((1.0, size, size * length))
    matrix = np.array(terms) / np.array(seconds)[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    solution, _ = nnls(matrix / scale, np.ones(len(seconds)))
    base_s, per_seq_s, per_token_s = (solution / scale).tolist()
    error = 100 * float(np.median(np.abs(matrix @ (solution / scale) - 1)))
    cost = ForwardCost.affine(max(base_s, SHORTEST_S), per_kv_token_s=per_token_s, per_seq_s=per_seq_s)
    return cost, error


def _draft(session: object, size: int, length: int, newest: torch.Tensor, k: int) -> Callable[[], object]:
    slots, counts = torch.arange(size), torch.ones(size, dtype=torch.long)
    tokens = newest.expand(size, 1)

    def work() -> object:
        session.lengths[:size] = length - 1  # type: ignore[attr-defined]
        logits = session.begin(slots, tokens, counts)  # type: ignore[attr-defined]
        for _ in range(k - 1):
            logits = session.step(tokens[:, 0])  # type: ignore[attr-defined]
        return logits

    return work


def no_model(name: str) -> Model:
    """What a profile says of a draft without weights."""
    return Model(name, name, 0, 0, 0, "none", 1)
