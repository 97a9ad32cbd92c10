"""Memory of a device: what is free, how many KV blocks that makes, and what running out of it looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil  # type: ignore[import-untyped]
import torch

from traces.errors import InputError

Made = TypeVar("Made")

BLOCK_SIZE = 16  # tokens
GPU_SHARE = 0.9
CPU_SHARE = 0.5


class NoRoomError(InputError):
    """The KV cache of so many sequences cannot be allocated; fewer may fit."""


@dataclass(frozen=True)
class Capacity:
    """The KV pool that both models share: blocks of `block_size` tokens, and in words where the number comes from."""

    num_kv_blocks: int
    block_size: int
    provenance: str


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a failed call only lacked memory: torch raises its own error on a GPU and a plain one on a CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError | NoRoomError):
        return True
    return isinstance(error, RuntimeError) and ("can't allocate memory" in str(error) or "out of memory" in str(error))


def free_bytes(device: torch.device) -> int:
    """Free memory of a GPU (what torch holds without using it included), available memory of the machine otherwise."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    return int(psutil.virtual_memory().available)


def total_bytes(device: torch.device) -> int:
    """Memory of the GPU, or of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)


def kv_capacity(
    device: torch.device,
    kv_bytes_per_token: int,
    *,
    free: int | None = None,
    share: float | None = None,
    block_size: int = BLOCK_SIZE,
    num_gpu_blocks: int | None = None,
) -> Capacity:
    """Blocks for tokens that cost `kv_bytes_per_token` in both models together.

    free             bytes left when both models are loaded and no KV cache is; None: what is free now
    share            of these bytes for the KV cache; None: 0.9 on a GPU, 0.5 elsewhere
    num_gpu_blocks   upper bound, as vLLM's --num-gpu-blocks-override

    Raises InputError if not one block fits.
    """
    free = free_bytes(device) if free is None else free
    share = (GPU_SHARE if device.type == "cuda" else CPU_SHARE) if share is None else share
    blocks = int(share * free) // (block_size * kv_bytes_per_token)
    said = f"{share:g} of {free / 2**30:.1f} GiB free on {device.type}, models loaded; {kv_bytes_per_token} B a token"
    if num_gpu_blocks is not None and num_gpu_blocks < blocks:
        blocks, said = num_gpu_blocks, f"given (memory would do for {blocks} blocks: {said})"
    if blocks < 1:
        raise InputError(f"no memory for a KV cache: {said}, {block_size} tokens a block")
    return Capacity(blocks, block_size, said)


def fitting_num_seqs(
    device: torch.device, kv_bytes_per_token: int, max_model_len: int, wanted: int, share: float = CPU_SHARE
) -> int:
    """The most slots whose KV fits a share of the free memory: `wanted`, halved as often as needed."""
    limit = share * free_bytes(device)
    seqs = wanted
    while seqs > 1 and seqs * max_model_len * kv_bytes_per_token > limit:
        seqs = (seqs + 1) // 2
    return seqs


def shrinking(make: Callable[[int], Made], num_seqs: int, say: Callable[[str], None]) -> tuple[Made, int]:
    """`make(num_seqs)` and the num_seqs it took: halved, and said so, as long as make raises NoRoomError."""
    while True:
        try:
            return make(num_seqs), num_seqs
        except NoRoomError:
            if num_seqs == 1:
                raise
            num_seqs //= 2
            say(f"out of memory: going on with batches of {num_seqs} sequences")
