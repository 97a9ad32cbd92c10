"""Slices, arrivals and refusals, for files, named traces and `random`."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from tests.traces.samples import TEXTS, write
from traces import InputError, TraceOptions, load

NO_TIMES = "prompt_tokens,output_tokens\n1,11\n2,12\n3,13\n"
THREE = "arrival_s,prompt_tokens,output_tokens\n10,1,11\n14,2,12\n20,3,13\n"


@pytest.fixture
def three(tmp_path):
    return write(tmp_path, THREE, "three.csv")


def test_file_by_default_whole_and_at_its_own_times(three):
    workload = load(three)
    assert workload.arrival_s.tolist() == [0, 4, 10]
    assert (workload.name, workload.origin) == ("three.csv", "replayed from three.csv")
    assert workload.notes[0] == "Arrivals at the trace's own times."


def test_density_scales_the_own_times(three):
    assert load(three, request_rate="trace*4").arrival_s.tolist() == [0, 1, 2.5]


def test_drawn_rate_replaces_the_own_times(three):
    workload = load(three, request_rate="2", burstiness=float("inf"))
    assert workload.arrival_s.tolist() == [0, 0.5, 1]
    assert not workload.has_times


def test_file_without_times_arrives_at_once_and_says_so(tmp_path):
    workload = load(write(tmp_path, NO_TIMES))
    assert workload.arrival_s.tolist() == [0, 0, 0]
    assert "as in vllm bench serve without --request-rate" in workload.notes[0]


def test_more_than_the_file_holds_is_noted_with_the_true_number(three):  # F33
    workload = load(three, num_prompts=10)
    assert len(workload) == 3
    assert any("10 requests asked for, the trace holds 3" in note for note in workload.notes)


def test_oversample_repeats_one_span_later(three):  # F33
    # span 10 s, mean gap 5 s: copies start at 0, 15, 30
    workload = load(three, num_prompts=7, oversample=True)
    assert workload.arrival_s.tolist() == [0, 4, 10, 15, 19, 25, 30]
    assert workload.prompt_tokens.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert any("3 requests repeated 3 times to make 7" in note for note in workload.notes)


def test_oversample_without_times(tmp_path):
    workload = load(write(tmp_path, NO_TIMES), num_prompts=5, oversample=True)
    assert workload.prompt_tokens.tolist() == [1, 2, 3, 1, 2]


def test_rate_of_the_head_is_that_of_the_head(tmp_path):  # F34
    # 10 rows 100 s apart, then 10 rows 0.1 s apart
    times = [100.0 * i for i in range(10)] + [900 + 0.1 * i for i in range(1, 11)]
    rows = "".join(f"{time},5,5\n" for time in times)
    path = write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + rows)
    assert load(path, num_prompts=10).offered_rate_rps == pytest.approx(9 / 900)
    assert load(path, num_prompts=10, skip_requests=10).offered_rate_rps == pytest.approx(9 / 0.9)


def test_skipping_everything_is_an_error(three):
    with pytest.raises(InputError, match="--skip-requests 3: the trace holds only 3 requests"):
        load(three, skip_requests=3)


def test_jitter_spreads_inside_the_tick(tmp_path):
    rows = "".join(f"{3 * (i // 100)},5,5\n" for i in range(1000))  # 100 requests on each tick of 3 s
    path = write(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + rows)
    workload = load(path, arrival_jitter_s=3.0)
    # ten ticks of 3 s, spread, cover 30 s evenly: 1000 requests over 30 s
    assert workload.arrival_s[-1] == pytest.approx(30, abs=0.5)
    assert len(np.unique(workload.arrival_s)) == 1000


def test_output_len_overrides_every_request(three):
    workload = load(three, output_len=9)
    assert workload.output_tokens.tolist() == [9, 9, 9]
    assert "Every output is set to 9 tokens." in workload.notes


def test_ramp_up(three):
    workload = load(
        three, ramp_up_strategy="linear", ramp_up_start_rps=1.0, ramp_up_end_rps=3.0, burstiness=float("inf")
    )
    assert np.diff(workload.arrival_s) == pytest.approx([1 / 2, 1 / 3])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_prompts": 10**12}, "--num-prompts 1000000000000: expected"),
        ({"request_rate": "trace*1e-320"}, "so thin that the times overflow"),
        ({"input_len": 5}, "--input-len applies only to the random trace"),
        ({"range_ratio": 0.5}, "--range-ratio applies only to the random trace"),
        ({"num_prompts": 0}, "--num-prompts 0: expected"),
        ({"num_prompts": -1}, "--num-prompts -1: expected"),
        ({"skip_requests": -1}, "--skip-requests -1: expected"),
        ({"output_len": 0}, "--output-len 0: expected"),
        ({"seed": -1}, "--seed -1: expected"),
        ({"burstiness": 2.0}, "--burstiness applies to drawn arrivals"),
        ({"burstiness": 2.0, "request_rate": "inf"}, "--burstiness applies to a finite --request-rate"),
        ({"ramp_up_start_rps": 1.0}, "--ramp-up-start-rps needs --ramp-up-strategy"),
        ({"ramp_up_strategy": "linear"}, "--ramp-up-strategy needs --ramp-up-start-rps"),
        (
            {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 2.0, "request_rate": "3"},
            "leave --request-rate out",
        ),
        ({"arrival_jitter_s": 0.0}, "--arrival-jitter-s 0: expected"),
        ({"arrival_jitter_s": 1.0, "request_rate": "3"}, "--arrival-jitter-s applies to the trace's own times"),
    ],
)
def test_option_that_cannot_be(three, fields, message):
    with pytest.raises(InputError, match=message):
        load(three, **fields)


@pytest.mark.parametrize(
    ("trace", "fields", "message"),
    [
        ("sharegpt", {"time_unit": "ms"}, "--time-unit applies only to a trace file; sharegpt is sampled"),
        ("sharegpt", {"vllm_filter": True}, "--vllm-filter applies only to a trace file"),
        ("sharegpt", {"range_ratio": 0.1}, "--range-ratio applies only to the random trace"),
        ("sharegpt", {"request_rate": "trace"}, "--request-rate trace: sharegpt has no times of its own"),
        ("random", {"oversample": True}, "--oversample applies only to a trace file; random is synthetic"),
        ("random", {"input_len": 0}, "--input-len 0: expected"),
        ("random", {"range_ratio": 1.0}, "--range-ratio 1: expected"),
        ("random", {"input_len": 10**30}, "--input-len 1000000000000000000000000000000: expected"),
        ("x" * 5000, {}, "neither a file nor one of"),
        ("nowhere.csv", {}, "no trace 'nowhere.csv': neither a file nor one of sharegpt, "),
    ],
)
def test_option_that_does_not_apply(trace, fields, message):
    with pytest.raises(InputError, match=message):
        load(trace, **fields)


def test_own_times_of_a_file_without_any(tmp_path):
    with pytest.raises(InputError, match="has no times of its own; give a rate"):
        load(write(tmp_path, NO_TIMES), request_rate="trace*2")


def test_directory_is_no_trace(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path)


def test_options_and_fields_are_the_same_door():
    by_options = load(TraceOptions(trace="gsm8k", num_prompts=5, seed=3))
    assert load("gsm8k", num_prompts=5, seed=3).prompt_tokens.tolist() == by_options.prompt_tokens.tolist()


def test_random_has_vllms_defaults_and_arrives_at_once():
    workload = load("random", num_prompts=3)
    assert (workload.prompt_tokens.tolist(), workload.output_tokens.tolist()) == ([1024] * 3, [128] * 3)
    assert workload.origin == "synthetic"


def test_random_range_has_both_ends_and_is_uniform():
    workload = load("random", num_prompts=20_000, input_len=10, output_len=1, range_ratio=0.5)
    # [5, 15] and [max(1, 0), 2]: 11 and 2 values; the count of each within 5 standard errors of 1/11 and 1/2
    values, counts = np.unique(workload.prompt_tokens, return_counts=True)
    assert values.tolist() == list(range(5, 16))
    assert counts / 20_000 == pytest.approx(np.full(11, 1 / 11), abs=5 * 0.0021)
    assert np.unique(workload.output_tokens).tolist() == [1, 2]


def test_random_range_does_not_round_up_a_whole_bound():
    # 10 * (1 + 0.1) is 11.000000000000002 in binary; the range is [9, 11]
    assert load("random", num_prompts=2000, input_len=10, range_ratio=0.1).prompt_tokens.max() == 11


@pytest.mark.parametrize("trace", ["random", "sharegpt", "azure-conv", "gsm8k"])
def test_first_of_a_larger_sample_are_the_smaller_sample(trace):
    small, large = load(trace, num_prompts=50, seed=4), load(trace, num_prompts=500, seed=4)
    for column in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert getattr(large, column)[:50].tolist() == getattr(small, column).tolist()


def test_two_processes_and_hash_seeds_give_the_same_bytes():  # F36, F65
    program = (
        "from traces import load\n"
        "w = load('azure-conv', num_prompts=200, seed=7)\n"
        "print(hash((w.arrival_s.tobytes(), 0)) and w.arrival_s.tobytes().hex(), w.output_tokens.tolist())"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1")
    ]
    assert printed[0] == printed[1]


def test_tasks_are_named_in_order_of_appearance(tmp_path):
    workload = load(write(tmp_path, TEXTS["burstgpt"]))
    assert (workload.task, workload.task_id.tolist()) == (("Conversation log", "API log"), [0, 1])
