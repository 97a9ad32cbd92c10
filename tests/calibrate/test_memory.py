"""KV blocks out of bytes, and what lack of memory looks like."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
pytest.importorskip("psutil")

from calibrate.memory import NoRoomError, fitting_num_seqs, free_bytes, is_out_of_memory, kv_capacity, shrinking  # noqa: E402
from traces.errors import InputError  # noqa: E402

CPU = torch.device("cpu")


def test_blocks_of_a_share_of_the_free_memory() -> None:
    """Half of 1,000,000 bytes in blocks of 16 tokens of 100 bytes: 312.5."""
    found = kv_capacity(CPU, 100, free=1_000_000)
    assert (found.num_kv_blocks, found.block_size) == (312, 16)


def test_a_gpu_gives_nine_tenths() -> None:
    """900,000 / 1,600 = 562.5."""
    assert kv_capacity(torch.device("cuda"), 100, free=1_000_000).num_kv_blocks == 562


@pytest.mark.parametrize(("given", "expected"), [(10, 10), (10_000, 312)])
def test_a_given_number_of_blocks_is_an_upper_bound(given: int, expected: int) -> None:
    assert kv_capacity(CPU, 100, free=1_000_000, num_gpu_blocks=given).num_kv_blocks == expected


def test_no_room_for_a_block_is_an_error() -> None:
    with pytest.raises(InputError, match="no memory for a KV cache"):
        kv_capacity(CPU, 100, free=1_000)


def test_slots_are_halved_until_they_fit() -> None:
    """A token of a quarter of the free memory: half of it holds 2 tokens, 16 slots of one token become 2 or fewer."""
    assert fitting_num_seqs(CPU, free_bytes(CPU) // 4, 1, 16) in (1, 2)
    assert fitting_num_seqs(CPU, 1, 1, 16) == 16


def test_a_cache_that_cannot_be_allocated_is_halved_until_it_can() -> None:
    """5 slots fit: 32, 16 and 8 do not, 4 do."""
    said: list[str] = []

    def make(num_seqs: int) -> str:
        if num_seqs > 5:
            raise NoRoomError("no memory")
        return "made"

    assert shrinking(make, 32, said.append) == ("made", 4)
    assert said == [f"out of memory: going on with batches of {n} sequences" for n in (16, 8, 4)]


def test_the_allocator_of_the_cpu_is_understood() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_other_failures_are_not_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
