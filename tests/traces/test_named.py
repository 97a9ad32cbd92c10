"""Named traces: embedded figures that say where they come from, sampled faithfully."""

from __future__ import annotations

import numpy as np
import pytest

from traces import load
from traces.describe import describe
from traces.named import DATA, NAMES, Quantiles, named_trace

NAMES_OF_DSDE = ("cnn_dailymail", "xsum", "gsm8k", "hotpotqa", "nq", "humaneval", "wmt14")
SAMPLE = 50_000

# file figures: STATS of the published files, p50 and p90 of prompt and of output, Spearman rho
MEASURED = {
    "sharegpt": (297, 878, 402, 817, -0.04),
    "sharegpt-long": (1730, 5696, 415, 834, 0.05),
    "azure-conv": (1020, 2734, 129, 424, 0.07),
    "azure-code": (1469, 5188, 13, 55, -0.02),
    "mooncake": (6909, 27367, 350, 597, 0.07),
    "arxiv": (2730, 3702, 167, 372, -0.11),
}


def test_one_file_of_data_per_name():
    assert {path.stem for path in DATA.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_says_where_it_comes_from(name):
    workload = load(name, num_prompts=20)
    assert workload.origin.startswith("sampled from ")
    assert named_trace(name).licence in workload.origin


@pytest.mark.parametrize("name", ["burstgpt", *NAMES_OF_DSDE])
def test_says_what_is_assumed_where_only_marginals_are_known(name):
    assert any("taken as independent" in note or "is borrowed" in note for note in load(name, num_prompts=2).notes)


@pytest.mark.parametrize("name", NAMES_OF_DSDE)
def test_says_that_task_outputs_are_reference_answers_or_assumed(name):
    assert any("reference" in note or "assumed" in note for note in load(name, num_prompts=2).notes)


@pytest.mark.parametrize("name", NAMES_OF_DSDE)
def test_task_is_carried(name):
    assert load(name, num_prompts=2).task == (name,)


@pytest.mark.parametrize("name", MEASURED)
def test_marginals_and_dependence_are_those_of_the_file(name):
    prompt_p50, prompt_p90, output_p50, output_p90, rho = MEASURED[name]
    figures = describe(load(name, num_prompts=SAMPLE))
    # 4 %: the sampling error of a median over 50,000 where the density is lowest (ShareGPT's two-humped prompts)
    assert figures.prompt_tokens.p50 == pytest.approx(prompt_p50, rel=0.04)
    assert figures.prompt_tokens.p90 == pytest.approx(prompt_p90, rel=0.04)
    assert figures.output_tokens.p50 == pytest.approx(output_p50, rel=0.04)
    assert figures.output_tokens.p90 == pytest.approx(output_p90, rel=0.04)
    assert figures.spearman == pytest.approx(rho, abs=0.05)


def test_dependence_beyond_the_correlation_survives():
    # the file's median output by fifth of the prompt; a correlation of 0.07 alone would give about 129 everywhere
    fifths = describe(load("azure-conv", num_prompts=SAMPLE)).median_output_by_prompt_fifth
    assert fifths == pytest.approx([105, 97, 399, 399, 77], rel=0.05)


def test_translation_follows_its_prompt():
    # the borrowed BWB histogram has rho 0.805
    assert describe(load("wmt14", num_prompts=20_000)).spearman == pytest.approx(0.8, abs=0.05)


@pytest.mark.parametrize(("name", "rate", "shape"), [("azure-conv", 5.53, 0.835), ("burstgpt", 0.271, 0.25)])
def test_modelled_arrivals_have_rate_and_shape_of_the_trace(name, rate, shape):
    figures = describe(load(name, num_prompts=SAMPLE))
    assert figures.offered_rate_rps == pytest.approx(rate, rel=0.04)
    assert figures.gap_cv == pytest.approx(shape**-0.5, rel=0.04)  # CV of a gamma distribution
    assert figures.notes[0].startswith("Arrivals modelled: gamma gaps")


def test_modelled_arrivals_scale_and_take_another_burstiness():
    workload = load("azure-conv", num_prompts=4, request_rate="trace*4", burstiness=float("inf"))
    assert np.diff(workload.arrival_s) == pytest.approx(np.full(3, 1 / (4 * 5.53)))


def test_trace_without_times_has_a_default_rate():
    workload = load("sharegpt", num_prompts=SAMPLE)
    assert workload.offered_rate_rps == pytest.approx(8, rel=0.02)
    assert workload.notes[0] == "Arrivals drawn: Poisson at 8 requests/s, this trace's default rate."


def test_quantiles_are_interpolated_and_at_least_one_token():
    quantiles = Quantiles(np.array([0.0, 0.5, 1.0]), np.array([0.0, 10.0, 20.0]))
    assert quantiles.at(np.array([0.0, 0.25, 0.5, 1.0])).tolist() == [1, 5, 10, 20]
