"""Windows against live runs: they agree, and a difference is found."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.bank import Trajectory
    from calibrate.lengths import expected_steps, first_difference, greedy_steps
    from calibrate.reconcile import reconcile
    from calibrate.record import Recorder, Settings
    from calibrate.signals import Sampling
    from traces.errors import InputError

    from .random_pairs import PROMPTS, gpt2, llama, model_pair, ngram_pair, skip_pair


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def recorded(found: Any, temperature: float, prompts: Any = PROMPTS) -> tuple[Settings, list[Trajectory]]:
    settings = Settings(Sampling(temperature), depth=4, output_tokens=24)
    return settings, list(Recorder(found, settings).trajectories(prompts))


@pytest.mark.parametrize("make", [lambda: model_pair(llama), lambda: model_pair(gpt2), skip_pair, ngram_pair])
@pytest.mark.parametrize("k", [1, 4])
def test_greedy_runs_equal_the_windows_step_for_step(make: Any, k: int) -> None:
    found = make()
    settings, texts = recorded(found, 0.0)
    result = reconcile(found, PROMPTS, texts, settings, k=k)
    assert (result.problem, result.near_ties) == (None, 0)
    assert result.live_length == result.window_length


def test_sampled_runs_agree_within_their_interval() -> None:
    """8 x 3 texts; the interval is narrow enough to mean something."""
    found, prompts = model_pair(llama), PROMPTS * 8
    settings, texts = recorded(found, 1.0, prompts)
    result = reconcile(found, prompts, texts, settings, k=3)
    assert result.problem is None
    assert abs(result.live_length - result.window_length) < result.bound < 1


def changed(text: Trajectory) -> Trajectory:
    """Acceptance turned around."""
    return dataclasses.replace(text, accept=1 - text.accept)


@pytest.mark.parametrize(("temperature", "expected"), [(0.0, "no near-tie"), (1.0, "acceptance length at k = 2")])
def test_wrong_windows_are_found(temperature: float, expected: str) -> None:
    found, prompts = model_pair(llama, 0.1), PROMPTS * 4
    settings, texts = recorded(found, temperature, prompts)
    result = reconcile(found, prompts, [changed(text) for text in texts], settings, k=2)
    with pytest.raises(InputError, match=expected):
        result.check()


def test_drafts_deeper_than_the_windows_are_refused() -> None:
    found = model_pair(llama)
    settings, texts = recorded(found, 0.0)
    with pytest.raises(InputError, match="the windows hold 1 to 4"):
        reconcile(found, PROMPTS, texts, settings, k=5)


def test_expected_steps_of_even_chances() -> None:
    """.5 everywhere, k = 1, f(rows left): f(1) = 1, f(2) = 1 + f(1) / 2 = 1.5, f(3) = 1 + (f(2) + f(1)) / 2 = 2.25."""
    assert expected_steps(np.full((3, 4), 0.5, np.float32), 1) == 2.25


def test_greedy_steps_stop_at_the_end_of_the_text() -> None:
    """Rows 0..4, k = 2: the step at row 0 emits both drafts and a bonus, that at row 3 two drafts; then the end."""
    accept = np.array([[1, 1], [0, 0], [0, 0], [1, 1], [1, 1]], np.float32)
    assert greedy_steps(accept, 2) == [3, 2]
    assert expected_steps(accept, 2) == 2


@pytest.mark.parametrize(
    ("text", "steps", "expected"),
    [([5, 1, 2, 3], [1, 2], None), ([6, 1, 2, 3], [1, 2], 0), ([5, 1, 2, 9], [1, 2], 1), ([5, 1, 2, 3], [2, 1], 0)],
)
def test_first_difference(text: list[int], steps: list[int], expected: int | None) -> None:
    assert first_difference([5, 1, 2, 3], [1, 2], text, steps) == expected
