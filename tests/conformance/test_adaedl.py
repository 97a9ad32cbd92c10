"""`adaedl` against DSDE's copy of AdaEDL (its repository): the threshold after each step, the stop in the draft loop.

There gamma is 0.1, the first to stop ends the draft for the batch, and entropy is taken with ln(p + 1e-9), in single
precision; ours takes the signal as it is, so that the test makes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.policies.adaedl import AdaEDL
from tests.sim.draft_loop import verify
from tests.sim.policy_driver import GivenSignals, batch, policy

pytestmark = pytest.mark.golden


@pytest.fixture(scope="module")
def vectors(golden: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((golden / "adaedl_dsde.json").read_text("utf-8"))
    return document


def adaedl(spec: str, **options: int) -> AdaEDL:
    rule = policy(spec, **options)
    assert isinstance(rule, AdaEDL)
    return rule


def test_threshold(vectors: dict[str, Any]) -> None:
    for case in vectors["lambda"]:
        k = case["config"]["max_spec"]
        rule = adaedl(f"adaedl:k={k}", max_draft_tokens=k)
        for index, step in enumerate(case["steps"]):
            verify(rule, [[0.0] * k], [step["k"]], [step["a"]])
            found = (rule.threshold[0], rule.acceptance[0])
            assert found == pytest.approx((step["lambda"], step["ar"]), rel=1e-9, abs=1e-9), (case["name"], index)


def test_stop(vectors: dict[str, Any]) -> None:
    for case in vectors["stop"]:
        logits = np.array(case["logits"], np.float64)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        entropy = -(p * np.log(p + 1e-9)).sum(axis=1)
        assert entropy == pytest.approx(case["entropy_f32"], rel=1e-5, abs=1e-5)
        rows, depth = len(logits), case["steps_done"]
        signals = GivenSignals(*[np.repeat(entropy[:, None], depth, axis=1)] * 6)
        for scope, expected in (("batch", [case["stop"]] * rows), ("sequence", None)):
            spec = f"adaedl:gamma={case['gamma']},min_spec={case['min_k']},scope={scope}"
            rule = adaedl(spec, num_slots=max(rows, 8))
            rule.threshold[:rows] = case["lambda"]
            own = [below and depth >= case["min_k"] for below in case["below"]]
            assert rule.stop(batch(range(rows)), depth, signals).tolist() == (expected or own), case
