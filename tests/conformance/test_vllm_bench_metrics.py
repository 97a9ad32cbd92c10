"""Every case of vLLM's own metric function, its parsing of SLO arguments, and its files of real runs."""

from __future__ import annotations

import json

import pytest

from sim.latency import bench_metrics, parse_goodput, timings_of_client
from traces.errors import InputError

TOTALS = {"total_input": "total_input_tokens", "total_output": "total_output_tokens"}


def flat(metrics: dict) -> dict:
    """vLLM's internal fields under the key names of its JSON."""
    named = {}
    for key, value in metrics.items():
        if key.startswith("percentiles_"):
            named |= {f"p{percentile:g}_{key.removeprefix('percentiles_')}": number for percentile, number in value}
        else:
            named[TOTALS.get(key, key)] = value
    return named


def undefined_here(case: dict, measured: dict) -> set[str]:
    """The stated differences: where vLLM reports 0 for what does not exist, we report null (F1)."""
    sample_sizes = {
        "ttft": case["metrics"]["completed"],
        "e2el": case["metrics"]["completed"],
        "tpot": sum(tokens > 1 for tokens in case["output_lens"]),
        "itl": sum(len(request[6]) for request in case["requests"] if request[0]),
    }
    empty = {f"_{name}_ms" for name, size in sample_sizes.items() if size == 0}
    keys = {key for key in measured if any(key.endswith(suffix) for suffix in empty)}
    return keys | (set() if case["slo_ms"] else {"request_goodput"})


@pytest.mark.golden
def test_metrics_of_every_case(golden):
    cases = json.loads((golden / "vllm_bench_metrics.json").read_text("utf-8"))["cases"]
    for case in cases:
        columns = [[request[column] for request in case["requests"]] for column in range(7)]
        timings = timings_of_client(*columns)
        measured = bench_metrics(timings, case["duration_s"], slo=case["slo_ms"], percentiles=case["percentiles"])
        expected = flat(case["metrics"])
        undefined = undefined_here(case, measured)
        for key, value in expected.items():
            if key in undefined:
                assert (value, measured[key]) == (0, None), (case["name"], key)
            else:
                assert measured[key] == pytest.approx(value, rel=1e-9, abs=1e-9), (case["name"], key)
        assert set(measured) == {*expected, "duration", "peak_output_tokens_per_s"}
        counts = [tokens if ok else 0 for tokens, ok in zip(timings.output_tokens, columns[0], strict=True)]
        assert counts == case["output_lens"], case["name"]


@pytest.mark.golden
def test_slo_arguments(golden):
    for case in json.loads((golden / "vllm_bench_metrics.json").read_text("utf-8"))["slo_arguments"]:
        if case["accepted"]:
            assert parse_goodput(case["given"]) == case["parsed"]
        else:
            with pytest.raises(InputError) as error:
                parse_goodput(case["given"])
            assert "\n" not in str(error.value)


@pytest.mark.shared_data
def test_figures_of_real_runs_follow_from_their_details(shared_data):
    # vLLM's own files, several tokens per chunk among them: the summary recomputed from the lists beside it
    files = sorted((shared_data / "vllm").glob("*-inf-*.json"))
    assert files
    for path in files:
        run = json.loads(path.read_text("utf-8"))
        lists = ("input_lens", "output_lens", "start_times", "ttfts", "latencies", "itls")
        success = [not error for error in run["errors"]]
        measured = bench_metrics(timings_of_client(success, *(run[name] for name in lists)), run["duration"])
        compared = {key for key in measured if key in run and key != "request_goodput"}
        assert len(compared) > 30
        for key in compared:
            assert measured[key] == pytest.approx(run[key], rel=1e-9), (path.name, key)
