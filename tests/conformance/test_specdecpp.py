"""`specdec++` against drafts of the original draft loop (SpecDec++'s repository, arXiv 2405.19715)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim.policies import make_policy
from tests.sim.draft_loop import drafted
from tests.sim.policy_driver import context


@pytest.mark.golden
def test_stop(golden: Path) -> None:
    cases = json.loads((golden / "specdecpp.json").read_text("utf-8"))["stop"]
    for case in cases:
        low, high = case["bound"] or (0, len(case["p_hat"]))
        # p_hat[0] is discarded; p_hat[j], seen after token j + 1, is of token j: ours is the chance of that token
        chances = np.array([[*case["p_hat"][1:], 1.0]])
        spec = f"specdec++:h={case['threshold']},min_spec={low},max_spec={high}"
        rule = make_policy(spec, replace(context(), acceptance_chances=lambda batch, table=chances: table))
        end = (
            len(case["p_hat"]) if case["eos_at"] is None else case["eos_at"] + 1
        )  # the end of the text is the engine's
        assert drafted(rule, np.zeros((1, end)).tolist()) == [case["drafted"]], case
