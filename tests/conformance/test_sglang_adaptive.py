"""`sglang-adaptive` against the steps and means of SGLang's own AdaptiveSpeculativeParams, batch by batch."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sim.policies.sglang_adaptive import SGLangAdaptive, parse_config
from tests.sim import policy_driver
from traces.errors import InputError


def vectors(golden: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((golden / "sglang_adaptive.json").read_text(encoding="utf-8"))
    return document


def policy(case: dict[str, Any]) -> SGLangAdaptive:
    spec = f"sglang-adaptive:k={case['initial_steps']}"
    if case["config"]:
        spec += f",config={json.dumps(case['config'])}"
    if case["cuda_graph_bs"]:
        spec += f",graph_sizes={json.dumps(case['cuda_graph_bs'])}"
    made = policy_driver.policy(spec, num_slots=128)
    assert isinstance(made, SGLangAdaptive)
    return made


@pytest.mark.golden
def test_every_batch_of_every_case(golden):
    for case in vectors(golden)["cases"]:
        rule = policy(case)
        for index, (size, used, reported, total, returned, after, ema) in enumerate(case["steps"]):
            where = f"{case['name']} step {index}"
            assert rule.lengths(policy_driver.batch(range(size))).tolist() == [used] * size, where
            mine = rule.range_of(size)
            # the mean is all that counts, so the sum may stand for the requests' own numbers
            mine.update(np.array([total, *[0] * (reported - 1)][:reported], np.int64))
            assert mine.steps == after, where
            assert returned == (None if after == used else after), where
            assert mine.ema == pytest.approx(ema, rel=1e-9, abs=1e-9), where
        for start, (steps, ema, batches) in case["slots_at_end"].items():
            mine = rule.ranges[rule.starts.index(int(start))]
            assert (mine.steps, mine.batches) == (steps, batches), case["name"]
            assert mine.ema == pytest.approx(ema, rel=1e-9, abs=1e-9), case["name"]


@pytest.mark.golden
def test_configurations_that_sglang_refuses(golden):
    for case in vectors(golden)["configs"]:
        assert not case["accepted"]
        with pytest.raises(InputError, match="sglang-adaptive"):
            parse_config(case["config"])
