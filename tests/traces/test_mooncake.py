from __future__ import annotations

import json

import pytest

from tests.traces.samples import write
from traces import load
from traces.files import read_text
from traces.formats import recognise
from traces.formats.blocks import block_size

TWO = (
    '{"timestamp":0,"input_length":6758,"output_length":500,"hash_ids":[0,1]}\n'
    '{"timestamp":27482,"input_length":7322,"output_length":490,"hash_ids":[0,2]}\n'
)


def test_milliseconds(tmp_path):  # F28
    assert load(write(tmp_path, TWO)).arrival_s.tolist() == [0, 27.482]


def test_seconds_on_request(tmp_path):  # F28
    assert load(write(tmp_path, TWO), time_unit="s").arrival_s.tolist() == [0, 27482]


def lines(times: list[float]) -> str:
    return "".join(json.dumps({"timestamp": t, "input_length": 10, "output_length": 5}) + "\n" for t in times)


def test_a_rate_a_thousand_times_off_is_noted(tmp_path):  # F28
    # 100 requests one a second, in seconds; read as milliseconds they are 1000 requests/s
    workload = load(write(tmp_path, lines(list(range(100)))), trace_format="mooncake")
    assert any("Times read as ms give 1e+03 requests/s" in note and "--time-unit s" in note for note in workload.notes)


def test_milliseconds_read_as_seconds_are_noted(tmp_path):  # F28
    workload = load(write(tmp_path, lines([1000 * t for t in range(100)])), trace_format="vllm-timed")
    assert any("Times read as s give 0.001 requests/s" in note for note in workload.notes)


def test_chosen_unit_is_not_questioned(tmp_path):
    workload = load(write(tmp_path, lines(list(range(100)))), trace_format="mooncake", time_unit="ms")
    assert not any("--time-unit" in note for note in workload.notes)


def test_prefix_blocks_of_512_tokens(tmp_path):
    blocks = load(write(tmp_path, TWO)).prefix_blocks
    assert blocks is not None
    assert (blocks.block_tokens, blocks.of(0).tolist(), blocks.of(1).tolist()) == (512, [0, 1], [0, 2])


def test_prefix_blocks_move_with_sorted_and_dropped_rows(tmp_path):
    text = (
        '{"timestamp":9,"input_length":600,"output_length":5,"hash_ids":[1,2]}\n'
        '{"timestamp":5,"input_length":600,"output_length":0,"hash_ids":[3,4]}\n'
        '{"timestamp":1,"input_length":100,"output_length":5,"hash_ids":[5]}\n'
    )
    blocks = load(write(tmp_path, text)).prefix_blocks
    assert blocks is not None
    assert [blocks.of(request).tolist() for request in range(2)] == [[5], [1, 2]]


def test_sixteen_token_blocks_are_vllm_timed(tmp_path):
    # 521 tokens in 33 blocks: only 16 satisfies 32 B < 521 <= 33 B among powers of two
    row = {"timestamp": 61, "input_length": 521, "output_length": 132, "hash_ids": list(range(33))}
    path = write(tmp_path, json.dumps(row) + "\n")
    assert recognise(read_text(path)) == "vllm-timed"
    blocks = load(path).prefix_blocks
    assert blocks is not None
    assert blocks.block_tokens == 16


def test_unsigned_hashes_are_told_apart(tmp_path):
    row = {"timestamp": 0.5, "input_length": 20, "output_length": 1, "hash_ids": [2**64 - 1, 2**64 - 2]}
    blocks = load(write(tmp_path, json.dumps(row) + "\n")).prefix_blocks
    assert blocks is not None
    assert len(set(blocks.ids.tolist())) == 2


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(6758, 14), (7322, 15)], 512),  # 482.7 <= B < 519.8
        ([(10, 1)], 16),  # 16, 32, ... all fit: the default
        ([(6758, 2), (7322, 900)], 16),  # contradictory: none fits
        ([], 16),
    ],
)
def test_block_size(sizes, expected):
    assert block_size(sizes) == expected
