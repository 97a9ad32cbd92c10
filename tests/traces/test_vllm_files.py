"""vLLM's own files: bench results and custom prompts."""

from __future__ import annotations

import json

import pytest

from tests.traces.samples import BENCH, TEXTS, write
from traces import InputError, load


def test_bench_result_without_details_says_which_flag_records_them(tmp_path):
    with pytest.raises(InputError, match="no input_lens: run vllm bench serve with --save-detailed"):
        load(write(tmp_path, '{"request_throughput": 1.0, "completed": 3}'))


def test_bench_result_of_older_versions_has_no_times(tmp_path):
    old = {key: value for key, value in BENCH.items() if key != "start_times"}
    assert not load(write(tmp_path, json.dumps(old, indent=2))).has_times


def test_bench_lists_of_different_length(tmp_path):
    with pytest.raises(InputError, match=r"the lists differ in length: \{'input_lens': 2, 'output_lens': 1"):
        load(write(tmp_path, json.dumps(BENCH | {"output_lens": [1]})))


def test_failed_requests_of_a_bench_result_are_dropped(tmp_path):
    workload = load(write(tmp_path, json.dumps(BENCH | {"output_lens": [20, 0]})))
    assert workload.dropped == {"failed (0 output tokens)": 1}


def test_custom_rows_without_output_get_vllm_default(tmp_path):
    workload = load(write(tmp_path, '{"prompt": "hello"}\n'))
    assert workload.output_tokens.tolist() == [256]  # --custom-output-len
    assert any("256 assumed" in note for note in workload.notes)


def test_output_len_overrides_custom_rows(tmp_path):
    workload = load(write(tmp_path, TEXTS["vllm-custom"]), output_len=33)
    assert workload.output_tokens.tolist() == [33, 33]


def test_custom_tasks(tmp_path):
    workload = load(
        write(tmp_path, '{"prompt": "a", "task": "math"}\n{"prompt": "b"}\n{"prompt": "c", "task": "math"}\n')
    )
    assert (workload.task, workload.task_id.tolist()) == (("math", ""), [0, 1, 0])
