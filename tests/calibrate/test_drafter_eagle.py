"""Sessions and windows of a draft that reads hidden states, against uncached passes of an untrained one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate import signals
    from calibrate.drafters.eagle import EagleDrafter
    from calibrate.pairs import Pair
    from calibrate.prompts import render
    from calibrate.reconcile import reconcile
    from calibrate.record import Recorder, Settings
    from calibrate.signals import Sampling
    from sim.replay.windows import SIGNALS

    from .random_eagle import RandomEagle
    from .random_pairs import LETTERS, PROMPTS, llama, pair

DEPTH, LENGTH = 4, 10


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def found() -> Pair:
    target = llama(0)
    return pair(target, EagleDrafter(RandomEagle(target).eval(), "eagle", LETTERS))


def naive(found: Pair, text: list[int], tokens: list[int]) -> Any:
    """Draft logits [len(tokens) + 1, V] after a text and each draft token; the text goes with the target's states."""
    model, states = found.drafter.model, []
    found.target.lm_head.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0]))
    with torch.no_grad():
        found.target(input_ids=torch.tensor([text]))
        found.target.lm_head._forward_pre_hooks.clear()
        before = torch.cat([torch.zeros_like(states[0][:, :1]), states[0][:, :-1]], 1)
        logits = []
        for token in [*tokens, None]:
            mask = torch.full((before.shape[1],) * 2, -1e9).triu(1)[None, None]
            output = model(torch.tensor([text]), before, attention_mask=mask)
            logits.append(output.logits[0, -1])
            if token is not None:
                text = [*text, token]
                before = torch.cat([before, output.hidden_states[:, -1:]], 1)
    return torch.stack(logits)


def test_windows_equal_naive_drafting(found: Pair) -> None:
    """Along the text its tokens are given, and the draft's own hidden states go with them."""
    settings = Settings(Sampling(temperature=1.0), depth=DEPTH, output_tokens=LENGTH, batch=3)
    worst = 0.0
    for prompt, recorded in zip(PROMPTS, Recorder(found, settings).trajectories(PROMPTS), strict=True):
        text = [*render(prompt, found.tokenizer), *recorded.tokens.tolist()]
        start = len(text) - len(recorded.tokens)
        for row in range(len(recorded.accept) - DEPTH):
            split = start + row + 1
            q = naive(found, text[:split], text[split : split + DEPTH - 1]).softmax(-1)
            expected = signals.entropy(q).tolist()
            worst = max(worst, np.abs(np.subtract(expected, recorded.on["draft_entropy"][row])).max())
    assert worst < 1e-4


def test_windows_do_not_depend_on_the_batch(found: Pair) -> None:
    runs = [
        list(Recorder(found, Settings(depth=DEPTH, output_tokens=LENGTH, batch=batch)).trajectories(PROMPTS))
        for batch in (1, 3)
    ]
    worst = [np.abs(a.off[n] - b.off[n]).max() for a, b in zip(*runs, strict=True) for n in SIGNALS]
    assert max(worst) < 1e-4


@pytest.mark.parametrize("k", [1, 3])
def test_greedy_live_runs_equal_the_windows(found: Pair, k: int) -> None:
    """The cache is filled with the target's states again after each verification."""
    settings = Settings(depth=DEPTH, output_tokens=LENGTH)
    texts = list(Recorder(found, settings).trajectories(PROMPTS))
    assert reconcile(found, PROMPTS, texts, settings, k=k).problem is None
