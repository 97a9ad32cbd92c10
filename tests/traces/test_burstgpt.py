from __future__ import annotations

import pytest

from tests.traces.samples import write
from traces import load

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
FAILED_IN_THE_MIDDLE = (
    HEADER
    + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,300,0,300,API log\n118,GPT-4,417,276,693,Conversation log\n"
)


def test_failed_requests_are_dropped_and_counted(tmp_path):  # F26
    workload = load(write(tmp_path, FAILED_IN_THE_MIDDLE))
    assert workload.arrival_s.tolist() == [0, 113]
    assert workload.dropped == {"failed (0 response tokens)": 1}


def test_failed_requests_are_kept_as_one_token_on_request(tmp_path):  # F26
    workload = load(write(tmp_path, FAILED_IN_THE_MIDDLE), keep_failed=True)
    assert workload.output_tokens.tolist() == [18, 1, 276]
    assert any("1 failed requests" in note for note in workload.notes)


def test_failed_request_without_recorded_prompt_is_kept_as_one_token_each(tmp_path):
    workload = load(write(tmp_path, HEADER + "1,m,0,0,0,API log\n2,m,5,6,11,API log\n"), keep_failed=True)
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([1, 5], [1, 6])


@pytest.mark.parametrize("keep_failed", [False, True])
def test_empty_prompt_is_counted_apart(tmp_path, keep_failed):
    workload = load(write(tmp_path, HEADER + "1,m,0,7,7,API log\n2,m,5,6,11,API log\n"), keep_failed=keep_failed)
    assert workload.dropped == {"0 prompt tokens": 1}


def test_eight_columns_are_found_by_name(tmp_path):  # F27
    text = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "0,s1,2,GPT-4,100,50,150,Conversation log\n"
    )
    workload = load(write(tmp_path, text))
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([100], [50])


def test_kind_of_log_is_the_task(tmp_path):
    workload = load(write(tmp_path, FAILED_IN_THE_MIDDLE), keep_failed=True)
    assert [workload.task[task] for task in workload.task_id] == ["Conversation log", "API log", "Conversation log"]
