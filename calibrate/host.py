"""Host time of an engine step that no forward pass accounts for: sampling, acceptance, transfers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import nnls

from calibrate.timing import Thunk, Timer
from sim.replay.cost import HostCost

SIZES = (1, 2, 4, 8, 16, 32, 64)
HOST_K = 4  # draft tokens of the step that is timed


def line(sizes: Sequence[int], work: Callable[[int], Thunk], timer: Timer) -> tuple[float, float]:
    """(base_s, per_seq_s) of work over `size` sequences: least squares of relative error, both >= 0."""
    seconds = np.array([timer.measure(work(size)).seconds for size in sizes])
    matrix = np.stack([np.ones(len(sizes)), np.asarray(sizes, dtype=np.float64)], 1) / seconds[:, None]
    (base_s, per_seq_s), _ = nnls(matrix, np.ones(len(sizes)))
    return float(base_s), float(per_seq_s)


def host_cost(
    vocab_size: int,
    device: torch.device,
    *,
    max_num_seqs: int,
    temperature: float = 0.0,
    k: int = HOST_K,
    timer: Timer | None = None,
) -> HostCost:
    """What a step of k drafts costs the live loop beside its passes, as a line over the number of sequences.

    Greedy: argmax of the draft k times and of the target once, tokens compared, results moved to the host. Above
    temperature 0: softmax, a draw from it and the accept test with its residual (arXiv 2211.17192) in their place.
    The control plane (scheduler, KV accounting) is not in it.
    """
    timer = timer or Timer.of(device, budget_s=0.3)
    sizes = [size for size in SIZES if size < max_num_seqs] + [max_num_seqs]

    def work(size: int) -> Thunk:
        generator = torch.Generator().manual_seed(0)
        draft = torch.randn((size, vocab_size), generator=generator).to(device)
        target = torch.randn((size, k + 1, vocab_size), generator=generator).to(device)
        greedy, sampled = (lambda: greedy_step(draft, target), lambda: sampled_step(draft, target, temperature))
        return sampled if temperature > 0 else greedy

    base_s, per_seq_s = line(sizes, work, timer)
    kind = f"temperature {temperature:g}" if temperature > 0 else "greedy"
    said = f"measured: {kind} sampling, acceptance and transfers of k = {k} on {device.type}, without a scheduler"
    return HostCost(base_s, per_seq_s, said)


def greedy_step(draft: torch.Tensor, target: torch.Tensor) -> list[list[int]]:
    """The tokens each of B sequences emits: draft [B, V] is used k times, target [B, k + 1, V] once."""
    k = target.shape[1] - 1
    proposed = torch.stack([draft.argmax(-1) for _ in range(k)], 1)
    wanted = target.argmax(-1)
    accepted = (proposed == wanted[:, :-1]).long().cumprod(1).sum(1)
    return [row[: count + 1] for row, count in zip(wanted.tolist(), accepted.tolist(), strict=True)]


def sampled_step(draft: torch.Tensor, target: torch.Tensor, temperature: float) -> list[list[int]]:
    """As `greedy_step`, with every token drawn and the accept test min(1, p / q)."""
    k = target.shape[1] - 1
    q = [(draft / temperature).softmax(-1) for _ in range(k)]
    proposed = torch.stack([torch.multinomial(row, 1)[:, 0] for row in q], 1)
    p = (target / temperature).softmax(-1)
    q_of = torch.stack([row.gather(1, proposed[:, i : i + 1])[:, 0] for i, row in enumerate(q)], 1)
    p_of = p[:, :-1].gather(2, proposed[..., None])[..., 0]
    accepted = (torch.rand(q_of.shape, device=q_of.device) * q_of < p_of).long().cumprod(1).sum(1)
    at = accepted.clamp(max=k)[:, None, None].expand(-1, 1, p.shape[-1])
    residual = p.gather(1, at)[:, 0]
    full = (accepted == k)[:, None]
    less = (residual - q[0]).clamp(min=0)
    residual = torch.where(full | (less.sum(-1, keepdim=True) == 0), residual, less)
    last = torch.multinomial(residual, 1)[:, 0].tolist()
    rows = zip(proposed.tolist(), accepted.tolist(), last, strict=True)
    return [[*tokens[:count], bonus] for tokens, count, bonus in rows]
