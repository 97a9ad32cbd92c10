from __future__ import annotations

import json

import numpy as np
import pytest

from traces import PrefixBlocks, Workload, load
from traces.describe import as_text, describe, spearman


def workload(arrival_s: list[float], prompt: list[int], output: list[int], **fields: object) -> Workload:
    return Workload("w", "synthetic", np.array(arrival_s), np.array(prompt), np.array(output), **fields)


def test_rate_counts_gaps_not_requests():
    # 3 requests over 4 s are 2 gaps of mean 2 s; gaps 1 and 3: standard deviation 1, over the mean 0.5
    figures = describe(workload([0, 1, 4], [1, 2, 3], [1, 2, 3]))
    assert (figures.offered_rate_rps, figures.gap_cv) == (0.5, 0.5)


def test_busiest_ten_seconds():
    # on the grid [0, 10), [10, 20): 1 and 3 requests
    assert describe(workload([0, 10, 11, 12], [1] * 4, [1] * 4)).peak_rate_rps == 0.3


@pytest.mark.parametrize("count", [1, 3])
def test_undefined_figures_are_none_and_json(count):
    figures = describe(workload([0.0] * count, [5] * count, [5] * count))
    assert (figures.offered_rate_rps, figures.gap_cv, figures.spearman) == (None, None, None)
    assert json.loads(json.dumps(figures.as_dict(), allow_nan=False))["requests"] == count
    assert "all at once" in as_text(figures)


def test_rank_correlation_shares_ranks_of_ties():
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5/4, variances 4.5/4 and 5/4: rho = sqrt(4.5/5)
    assert spearman(np.array([1, 2, 2, 3]), np.array([1, 2, 3, 4])) == pytest.approx((4.5 / 5) ** 0.5)


def test_share_of_repeated_blocks():
    # blocks 0 1 | 0 2: four, of which one has been seen
    blocks = PrefixBlocks(512, np.array([0, 2, 4]), np.array([0, 1, 0, 2]))
    assert describe(workload([0, 1], [600, 600], [1, 1], prefix_blocks=blocks)).repeated_block_share == 0.25


def test_text_names_origin_drops_and_notes():
    figures = describe(workload([0, 1], [1, 2], [1, 2], dropped={"failed": 3}, notes=("First note.", "Second note.")))
    text = as_text(figures)
    assert all(part in text for part in ("synthetic", "3: failed", "First note.", "Second note."))


def test_median_output_by_fifth():
    # prompts 1..10 with outputs 10..100: fifths hold two each
    figures = describe(workload([0] * 10, list(range(10, 0, -1)), list(range(100, 0, -10))))
    assert figures.median_output_by_prompt_fifth == [15, 35, 55, 75, 95]


def test_named_trace_is_described_with_its_tasks():
    assert describe(load("gsm8k", num_prompts=7)).tasks == {"gsm8k": 7}
