"""`svip` against drafts of the original draft loop (SVIP's repository, arXiv 2411.18462)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sim.draft_loop import drafted
from tests.sim.policy_driver import policy


@pytest.mark.golden
def test_stop(golden: Path) -> None:
    cases = json.loads((golden / "svip.json").read_text("utf-8"))["stop"]
    for case in cases:
        rule = policy(f"svip:threshold={case['threshold']}", max_draft_tokens=64)
        # the length limit and the end of the text are the engine's: it lets `remaining` - 1 be drafted
        limit = min(case["max_new_tokens"], 40)
        entropy = case["entropy"][:limit] if case["eos_at"] is None else case["entropy"][: case["eos_at"] + 1]
        assert drafted(rule, [entropy], remaining=limit + 1) == [case["drafted"]], case
