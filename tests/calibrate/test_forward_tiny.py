"""A short measurement of the committed pair: real passes end in costs."""

from __future__ import annotations

import warnings

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from transformers import AutoModelForCausalLM

    from calibrate import costs, forward
    from calibrate.grid import Extent
    from calibrate.runner import ModelRunner
    from calibrate.tiny import MODELS


def test_the_target_costs_more_than_the_draft() -> None:
    torch.set_num_threads(1)
    names = {"target": "target", "draft": "draft-s"}
    models = {n: AutoModelForCausalLM.from_pretrained(MODELS / d).float() for n, d in names.items()}
    runners = {n: ModelRunner(model, max_num_seqs=8, max_model_len=128) for n, model in models.items()}
    plan = forward.points_to_measure(runners, Extent(8, 128, 64), budget_s=3)
    found = costs.fit_costs(list(forward.measure(plan, runners)))
    assert found.draft is not None
    assert found.target.seconds(1, 65, 65, 1) > found.draft.seconds(1, 65, 65, 1) > 0
