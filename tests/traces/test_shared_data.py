"""The public trace files themselves (DRAFTLAB_DATA)."""

from __future__ import annotations

import time

import pytest
from scipy import stats

from traces import load
from traces.build_named import build
from traces.describe import describe
from traces.named import DATA, NAMES

pytestmark = pytest.mark.shared_data


@pytest.mark.parametrize(
    ("file", "requests", "dropped"),
    [
        ("azure2023_conv.csv.gz", 19366, 0),
        ("azure2023_code.csv.gz", 8819, 0),
        ("mooncake_conversation.jsonl.gz", 12031, 0),
        ("mooncake_synthetic.jsonl.gz", 3993, 0),
        ("sharegpt8k_llama2.csv.gz", 30731, 0),
        ("sharegpt2k_opt.csv.gz", 1600, 0),
        ("sharegpt_gpt4_300_llama3.csv.gz", 300, 0),
        ("arxiv_summarization_llama2.csv.gz", 28257, 0),
        ("bwb_llama2.csv.gz", 33768, 0),
        ("splitwise_conv.csv.gz", 19366, 0),
        ("burstgpt_head42.csv", 38, 4),  # 42 rows, of which 4 have 0 response tokens
    ],
)
def test_every_row_is_a_request_or_counted(shared_data, file, requests, dropped):
    workload = load(shared_data / "traces" / file)
    assert (len(workload), sum(workload.dropped.values())) == (requests, dropped)


def test_failed_rows_of_burstgpt_can_be_kept(shared_data):
    assert len(load(shared_data / "traces" / "burstgpt_head42.csv", keep_failed=True)) == 42


def test_azure_and_splitwise_are_the_same_requests(shared_data):
    azure = load(shared_data / "traces" / "azure2023_conv.csv.gz")
    splitwise = load(shared_data / "traces" / "splitwise_conv.csv.gz")
    assert azure.prompt_tokens.tolist() == splitwise.prompt_tokens.tolist()
    assert azure.arrival_s == pytest.approx(splitwise.arrival_s, abs=1e-6)  # Splitwise rounds to the microsecond


def test_loading_is_fast_enough_for_a_short_run(shared_data):
    start = time.process_time()
    load(shared_data / "traces" / "azure2023_conv.csv.gz")
    assert time.process_time() - start < 0.3


def test_vllm_filter_keeps_as_many_as_the_statistics_say(shared_data):
    assert len(load(shared_data / "traces" / "sharegpt8k_llama2.csv.gz", vllm_filter=True)) == 11035


def test_vllm_bench_result_is_a_workload(shared_data):
    workload = load(shared_data / "vllm" / "base-inf-c8-a.json")
    assert (len(workload), int(workload.output_tokens.sum())) == (60, 2888)  # its own total_output_tokens


def test_arrivals_have_the_published_rate_and_burstiness(shared_data):
    figures = describe(load(shared_data / "traces" / "azure2023_conv.csv.gz"))
    assert figures.offered_rate_rps == pytest.approx(5.53, abs=0.005)
    assert figures.gap_cv == pytest.approx(1.094, abs=0.001)


def test_jitter_makes_mooncake_nearly_poisson(shared_data):
    path = shared_data / "traces" / "mooncake_conversation.jsonl.gz"
    assert describe(load(path)).gap_cv == pytest.approx(3.03, abs=0.01)  # 90 % of the gaps are zero
    assert describe(load(path, arrival_jitter_s=3.0)).gap_cv == pytest.approx(1.01, abs=0.03)


def test_embedded_data_is_what_the_script_builds(shared_data, tmp_path):
    build(shared_data, tmp_path)
    for name in NAMES:
        assert (tmp_path / f"{name}.json").read_bytes() == (DATA / f"{name}.json").read_bytes(), name


@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("azure-conv", "azure2023_conv.csv.gz"),
        ("mooncake", "mooncake_conversation.jsonl.gz"),
        ("arxiv", "arxiv_summarization_llama2.csv.gz"),
    ],
)
def test_sampled_lengths_follow_the_files_distribution(shared_data, name, file, column):
    real = getattr(load(shared_data / "traces" / file), column)
    sampled = getattr(load(name, num_prompts=50_000), column)
    # 0.022: 99.9 % point of the distance at 10,000 against 50,000 draws of one law (1.95 sqrt(1/10000 + 1/50000))
    assert stats.ks_2samp(real, sampled).statistic < 0.022
