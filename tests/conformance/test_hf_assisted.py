"""`hf-heuristic` and `hf-confidence` against transformers 5.24 with scikit-learn, and the heuristics of two copies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.policies.hf_confidence import HFConfidence
from tests.sim.draft_loop import drafted, verify
from tests.sim.policy_driver import batch, policy

pytestmark = pytest.mark.golden
ANY_LENGTH = 10_000  # transformers sets no upper bound; ours is what can be drafted


def read(golden: Path, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((golden / name).read_text("utf-8"))
    return document


def check_heuristic(case: dict[str, Any], most: int = ANY_LENGTH) -> None:
    rule = policy(f"hf-heuristic:k={case['k0']}", num_slots=1, max_draft_tokens=most)
    for index, (proposed, matched, after) in enumerate(case["steps"]):
        verify(rule, [[0.0] * proposed], [proposed], [matched])
        assert rule.lengths(batch([0]))[0] == after, (case, index)


def test_heuristic(golden: Path) -> None:
    for case in read(golden, "hf_assisted.json")["heuristic"]:
        if case["schedule"] != "constant":  # that is `fixed`
            check_heuristic(case)


def test_heuristic_of_specdecpp(golden: Path) -> None:
    for case in read(golden, "specdecpp.json")["heuristic"]:
        check_heuristic(case)


def test_heuristic_of_svip(golden: Path) -> None:
    # SVIP's copy stops at 40; it compares with k, which tells where a draft was cut short: there the two part
    for case in read(golden, "svip.json")["heuristics"]:
        k, whole = case["k0"], []
        for proposed, matched, after in case["steps"]:
            whole.append([proposed, matched, after])
            if proposed < k and matched == proposed:
                whole.pop()
                break
            k = after
        assert whole
        check_heuristic({**case, "steps": whole}, most=40)


def test_threshold(golden: Path) -> None:
    for case in read(golden, "hf_assisted.json")["confidence"]:
        rule = policy(f"hf-confidence:threshold={case['threshold0']},k={case['k_max']}", max_draft_tokens=64)
        assert isinstance(rule, HFConfidence)
        for index, step in enumerate(case["steps"]):
            where, q = (case["name"], index), step["q"]
            assert drafted(rule, [[*q, *[1.0] * (case["k_max"] - len(q))]]) == [len(q)], where
            verify(rule, [q], [len(q)], [step["matches"]])
            assert rule.pairs.sum() == step["pairs"], where
            if "tied" in step:  # two thresholds cost the same: ours takes the higher, the original what rounding says
                assert rule.threshold == pytest.approx(max(step["tied"]), abs=1e-9), where
                rule.threshold = step["threshold"]
            else:
                assert rule.threshold == pytest.approx(step["threshold"], abs=1e-9), where


def test_stop(golden: Path) -> None:
    for case in read(golden, "hf_assisted.json")["stop"]:
        logits = np.array(case["logits"])
        q = float(np.exp(logits[case["token"]]) / np.exp(logits).sum())
        assert q == pytest.approx(case["q_f32"], rel=1e-5)
        rule = policy(f"hf-confidence:threshold={case['threshold']}")
        assert (drafted(rule, [[q, 1.0]]) == [1]) == case["stop"], case
