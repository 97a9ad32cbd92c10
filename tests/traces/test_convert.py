"""What is written in a format reads back as the same workload, up to the resolution of the format's clock."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces import InputError, PrefixBlocks, Workload, load
from traces.files import read_text, write_text
from traces.formats import FORMATS, recognise

CLOCK_S = {"azure": 1e-7, "burstgpt": 0.0, "mooncake": 1e-3, "vllm-timed": 0.0, "lengths": 0.0}

TOKENS = st.integers(1, 100_000)
GAPS_S = st.floats(0, 1e4, allow_nan=False)


@st.composite
def workloads(draw: st.DrawFn, block_tokens: int = 512) -> Workload:
    n = draw(st.integers(1, 12))
    gaps = draw(st.lists(GAPS_S, min_size=n - 1, max_size=n - 1))
    blocks = draw(st.lists(st.lists(st.integers(0, 2**62), max_size=3), min_size=n, max_size=n))
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in blocks])]).astype(np.int64)
    return Workload(
        "drawn",
        "synthetic",
        np.concatenate([[0.0], np.cumsum(gaps)]),
        np.array(draw(st.lists(TOKENS, min_size=n, max_size=n)), np.int64),
        np.array(draw(st.lists(TOKENS, min_size=n, max_size=n)), np.int64),
        has_times=True,
        prefix_blocks=PrefixBlocks(
            block_tokens, offsets, np.array([block for ids in blocks for block in ids], np.int64)
        ),
    )


def round_trip(workload: Workload, name: str) -> Workload:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.gz"
        write_text(path, FORMATS[name]().write(workload))
        assert recognise(read_text(path)) == name
        return load(path)


@pytest.mark.parametrize("name", CLOCK_S)
@given(workload=workloads())
@settings(max_examples=30, deadline=None)
def test_lengths_and_times_survive(name, workload):
    back = round_trip(workload, name)
    assert back.prompt_tokens.tolist() == workload.prompt_tokens.tolist()
    assert back.output_tokens.tolist() == workload.output_tokens.tolist()
    assert back.arrival_s == pytest.approx(workload.arrival_s, abs=CLOCK_S[name] + 1e-9)


@pytest.mark.parametrize("name", ["mooncake", "vllm-timed"])
@given(workload=workloads())
@settings(max_examples=30, deadline=None)
def test_prefix_blocks_survive(name, workload):
    back = round_trip(workload, name).prefix_blocks
    ids = [] if back is None else back.ids.tolist()  # a trace without any block reads back as one without blocks
    assert workload.prefix_blocks is not None
    assert ids == workload.prefix_blocks.ids.tolist()


def test_other_block_sizes_do_not_pass_for_mooncakes():
    offsets, ids = np.array([0, 1]), np.array([7])
    one = Workload(
        "w", "synthetic", np.zeros(1), np.array([16]), np.array([1]), prefix_blocks=PrefixBlocks(16, offsets, ids)
    )
    assert "hash_ids" not in FORMATS["mooncake"]().write(one)
    assert "hash_ids" in FORMATS["vllm-timed"]().write(one)


@pytest.mark.parametrize("name", ["burstgpt", "lengths"])
def test_tasks_survive(name):
    workload = load("gsm8k", num_prompts=5)
    assert round_trip(workload, name).task == ("gsm8k",)


def test_lengths_without_times_stay_without():
    workload = load("random", num_prompts=3)
    assert not round_trip(workload, "lengths").has_times


@pytest.mark.parametrize("name", ["sharegpt", "vllm-custom", "vllm-bench"])
def test_formats_of_text_and_results_are_only_read(name):
    with pytest.raises(InputError, match="it can only be read"):
        FORMATS[name]().write(load("random", num_prompts=1))
