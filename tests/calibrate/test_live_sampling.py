"""Sampled live text follows the target's law: chi-square of short continuations over many requests, cases apart.

Random models over six tokens; every continuation of three tokens has a known chance p(y1) p(y2|y1) p(y3|y1 y2). The
first token comes with the prefill; a step with k = 2 then decides the other two (or one, and the next step the last).
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
stats = pytest.importorskip("scipy.stats")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.drafters.base import Drafter
    from calibrate.drafters.eagle import EagleDrafter
    from calibrate.drafters.model import ModelDrafter
    from calibrate.drafters.ngram import NgramDrafter
    from calibrate.live.luck import Luck
    from calibrate.pairs import Pair, make_pair
    from calibrate.signals import Sampling, probabilities

    from .live_runs import serve, texts
    from .random_eagle import RandomEagle
    from .random_pairs import Letters, llama, noisy

SIZE, COUNT, LENGTH = 6, 3000, 3
PROMPT = [1, 2, 3, 1, 2]
LEAST = 1e-3
"""p-value that a sound run must reach; with fixed seeds the tests pass or fail for good."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def contrary(model: Any) -> Any:
    """Likes what the target dislikes: nearly every draft is rejected."""
    with torch.no_grad():
        model.lm_head.weight.neg_()
    return model


DRAFTERS: dict[str, Any] = {
    "bonus: the target itself, always accepted": lambda target: ModelDrafter(llama(0, vocabulary=SIZE), "same", SIZE),
    "residual: a contrary draft": lambda target: ModelDrafter(contrary(llama(0, vocabulary=SIZE)), "contrary", SIZE),
    "mixed: a noisy copy": lambda target: ModelDrafter(noisy(llama(0, vocabulary=SIZE), 0.5), "noisy", SIZE),
    "one-hot: prompt lookup": lambda target: NgramDrafter(SIZE, torch.device("cpu")),
    "hidden states: EAGLE": lambda target: EagleDrafter(RandomEagle(target), "eagle", SIZE),
}


def small_pair(make: Any) -> Pair:
    target = llama(0, vocabulary=SIZE)
    drafter: Drafter = make(target)
    return make_pair(target, Letters(), drafter, SIZE, target_name="target", draft_name=drafter.name)


def law(model: Any, sampling: Sampling) -> Any:
    """Chance of each continuation of three tokens, [6, 6, 6]."""
    rows = list(itertools.product(range(SIZE), repeat=LENGTH - 1))
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT + list(row) for row in rows])).logits
    p = probabilities(logits[:, len(PROMPT) - 1 :], sampling).double().numpy()
    found = np.zeros((SIZE,) * LENGTH)
    for (first, second), each in zip(rows, p, strict=True):
        found[first, second] = each[0, first] * each[1, second] * each[2]
    return found / found.sum()


def p_value(run: Any, expected: Any) -> float:
    """Continuations that are rarer than five times in all count as one."""
    counts = np.zeros((SIZE,) * LENGTH)
    np.add.at(counts, tuple(np.array(texts(run)).T), 1)
    wanted = expected.ravel() * COUNT
    often = wanted >= 5
    seen = np.append(counts.ravel()[often], counts.ravel()[~often].sum())
    wanted = np.append(wanted[often], max(wanted[~often].sum(), 1e-9))
    return float(stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue)


def sampled(pair: Pair, sampling: Sampling, **options: Any) -> Any:
    return serve(pair, [PROMPT] * COUNT, LENGTH, sampling=sampling, max_num_seqs=1000, tokens=20_000, **options)


@pytest.mark.parametrize("name", DRAFTERS)
def test_continuations_follow_the_target(name: str) -> None:
    pair, sampling = small_pair(DRAFTERS[name]), Sampling(1.0)
    run = sampled(pair, sampling, policy="fixed:k=2")
    accepted, drafts = run.log.emissions["accepted"], run.log.emissions["proposed"] > 0
    share = accepted[drafts].mean() / run.log.emissions["proposed"][drafts].mean()
    if name.startswith("bonus"):
        assert share == 1
    if name.startswith("residual"):
        assert share < 0.5  # sum min(p, q) is .43 in the mean after the first token, .44 after the second
    assert p_value(run, law(pair.target, sampling)) > LEAST


@pytest.mark.parametrize(
    ("policy", "options"),
    [("none", {}), ("svip", {}), ("fixed:k=2", {"compact": True}), ("fixed:k=2", {"max_num_seqs": 30})],
)
def test_whatever_the_policy_and_the_batch(policy: str, options: dict[str, Any]) -> None:
    pair, sampling = small_pair(DRAFTERS["mixed: a noisy copy"]), Sampling(0.7)
    options = {"max_num_seqs": 1000, "tokens": 20_000, **options}
    run = serve(pair, [PROMPT] * COUNT, LENGTH, sampling=sampling, policy=policy, **options)
    assert p_value(run, law(pair.target, sampling)) > LEAST


def test_truncated_laws_are_those_of_both_models() -> None:
    """top_k = 3 on both sides: accepting by the q before the cut would favour what both keep (F38)."""
    pair, sampling = small_pair(DRAFTERS["mixed: a noisy copy"]), Sampling(1.0, top_k=3)
    assert p_value(sampled(pair, sampling, policy="fixed:k=2"), law(pair.target, sampling)) > LEAST


def test_the_test_can_tell_a_wrong_law() -> None:
    """The text of the pair against the law of its draft."""
    pair, sampling = small_pair(DRAFTERS["mixed: a noisy copy"]), Sampling(1.0)
    run = sampled(pair, sampling, policy="fixed:k=2")
    assert p_value(run, law(pair.drafter.model, sampling)) < 1e-9


def test_one_seed_one_text_whatever_the_batch() -> None:
    """Draws belong to (request, step): with k = 0 the batch does not matter at all."""
    pair, sampling = small_pair(DRAFTERS["mixed: a noisy copy"]), Sampling(1.0)
    wide = serve(pair, [PROMPT] * 20, 8, sampling=sampling, max_num_seqs=20)
    narrow = serve(pair, [PROMPT] * 20, 8, sampling=sampling, max_num_seqs=3)
    assert texts(wide) == texts(narrow)
    assert texts(wide) != texts(serve(pair, [PROMPT] * 20, 8, sampling=sampling, max_num_seqs=20, seed=1))


def test_luck_is_even_and_used_once() -> None:
    """40,000 numbers: mean 1/2 with error sqrt(1/12/40000) = .0014, no two alike, no correlation of neighbours."""
    luck = Luck(0, 200, 10)
    draws = np.stack([luck.draw(np.arange(200)) for _ in range(20)])
    assert len(np.unique(draws)) == draws.size
    assert draws.mean() == pytest.approx(0.5, abs=4 * 0.0014)
    assert stats.kstest(draws.ravel(), "uniform").pvalue > LEAST
    assert abs(np.corrcoef(draws[..., :-1].ravel(), draws[..., 1:].ravel())[0, 1]) < 4 / draws.size**0.5
