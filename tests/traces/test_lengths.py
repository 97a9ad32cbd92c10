from __future__ import annotations

import pytest

from tests.traces.samples import write
from traces import load


@pytest.mark.parametrize(
    "header",
    [
        "prompt_tokens,output_tokens",
        "num_prefill_tokens,num_decode_tokens",
        "input_length,output_length",
        "input_len,output_len",
        "ContextTokens,GeneratedTokens",
        "Input Tokens,Completion Tokens",
    ],
)
def test_usual_spellings(tmp_path, header):
    workload = load(write(tmp_path, f"{header}\n5,7\n"))
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([5], [7])


@pytest.mark.parametrize("header", ["arrived_at", "arrival_s", "poisson16_arrival_s", "timestamp", "arrival_time"])
def test_usual_spellings_of_time(tmp_path, header):
    workload = load(write(tmp_path, f"prompt_tokens,output_tokens,{header}\n5,7,1.5\n5,7,4\n"))
    assert workload.arrival_s.tolist() == [0, 2.5]


def test_columns_in_any_order_and_extra_ones(tmp_path):
    workload = load(write(tmp_path, "pd_ratio,num_decode_tokens,note,num_prefill_tokens\n0.7,7,x,5\n"))
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([5], [7])


def test_milliseconds_on_request(tmp_path):
    workload = load(write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n0,5,7\n1500,5,7\n"), time_unit="ms")
    assert workload.arrival_s.tolist() == [0, 1.5]


def test_quoted_cells_over_two_lines_keep_the_line_numbers(tmp_path):
    text = 'prompt_tokens,output_tokens,note\n5,7,"two\nlines"\n5,x,\n'
    with pytest.raises(ValueError, match=r"trace\.txt:4: column output_tokens: value 'x'"):
        load(write(tmp_path, text))
