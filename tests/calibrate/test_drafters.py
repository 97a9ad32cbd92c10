"""Draft sessions against uncached passes, prompt lookup by hand, and layers that are left out."""

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
    from calibrate.drafters.model import ModelDrafter
    from calibrate.drafters.ngram import continuation, ngram_drafter
    from calibrate.drafters.skip import skip_drafter, without_layers
    from traces.errors import InputError

    from .random_pairs import LETTERS, gpt2, llama


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def ids(*rows: list[int]) -> Any:
    return torch.tensor(rows)


@pytest.mark.parametrize("make", [llama, gpt2])
def test_rounds_of_a_batch_equal_uncached_passes(make: Any) -> None:
    """Two rows, drafts of 3 of which 0 to 3 are accepted, full acceptance among them (F45, F46)."""
    model = make(0)
    session = ModelDrafter(model, "draft", LETTERS).session(3, 64)
    slots, texts = torch.tensor([2, 0]), [[1, 2, 3, 4], [5, 6]]
    for slot, text in zip(slots.tolist(), texts, strict=True):
        session.fill(slot, torch.tensor(text[:-1]))
    worst = 0.0
    for accepted in ([3, 0], [1, 3], [2, 2], [0, 3]):
        new = [text[int(session.lengths[slot]) :] for slot, text in zip(slots.tolist(), texts, strict=True)]
        counts = torch.tensor([len(row) for row in new])
        padded = ids(*([*row, *[0] * (int(counts.max()) - len(row))] for row in new))
        logits, drafts = session.begin(slots, padded, counts), [[], []]
        for depth in range(3):
            for row in range(2):
                with torch.no_grad():
                    expected = model(input_ids=ids([*texts[row], *drafts[row]])).logits[0, -1]
                worst = max(worst, float((logits[row] - expected).abs().max()))
            token = logits.argmax(-1)
            for row in range(2):
                drafts[row].append(int(token[row]))
            if depth < 2:
                logits = session.step(token)
        session.commit(torch.tensor(accepted))
        for row in range(2):
            texts[row] += [*drafts[row][: accepted[row]], 7]
    assert worst < 1e-4


def test_full_acceptance_leaves_two_tokens_to_feed() -> None:
    """F45: text of 4, 3 drafts of which 2 were fed, all accepted, and a bonus: 8 tokens, 6 of them in the cache."""
    session = ModelDrafter(llama(0), "draft", LETTERS).session(1, 32)
    session.begin(torch.tensor([0]), ids([1, 2, 3, 4]), torch.tensor([4]))
    session.step(torch.tensor([5]))
    session.step(torch.tensor([6]))
    session.commit(torch.tensor([3]))
    assert session.lengths.tolist() == [6]


def test_skipping_layers_equals_a_model_without_them() -> None:
    """Layer 1 of 3 made the identity (its two output projections 0) gives the same logits as leaving it out."""
    target, identity = llama(0), llama(0)
    with torch.no_grad():
        identity.model.layers[1].self_attn.o_proj.weight.zero_()
        identity.model.layers[1].mlp.down_proj.weight.zero_()
        text = ids([3, 1, 4, 1, 5])
        found = without_layers(target, [1])(input_ids=text).logits
        assert float((found - identity(input_ids=text).logits).abs().max()) < 1e-5


@pytest.mark.parametrize("make", [llama, gpt2])
def test_skipping_layers_shares_weights_and_leaves_the_target_whole(make: Any) -> None:
    target = make(0, layers=3)
    with torch.no_grad():
        before = target(input_ids=ids([1, 2])).logits
        draft = without_layers(target, [0])
        assert {id(p) for p in draft.parameters()} < {id(p) for p in target.parameters()}
        assert (draft.config.num_hidden_layers, target.config.num_hidden_layers) == (2, 3)
        assert torch.equal(target(input_ids=ids([1, 2])).logits, before)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("skip:x", "expected layer numbers"),
        ("skip:", "expected layer numbers"),
        ("skip:1,1", "named twice"),
        ("skip:3", "layers 0 to 2"),
        ("skip:-1", "layers 0 to 2"),
        ("skip:0,1,2", "leave one at least"),
    ],
)
def test_wrong_layers_are_refused(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        skip_drafter(llama(0), spec, LETTERS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ([1, 2, 3, 4, 1, 2, 3], [4, 1, 2, 3]),  # the last three stood at the start
        ([1, 2, 9, 5, 2, 8, 2], [9, 5, 2, 8, 2]),  # no two did, one did: its leftmost place
        ([7, 7, 7, 7], [7]),  # the last three stood at 0, and one token follows them
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_lookup(text: list[int], expected: list[int]) -> None:
    assert continuation(np.array(text)).tolist() == expected


def test_lookup_proposes_to_the_end_of_what_it_found() -> None:
    """1 2 1: after the first 1 came 2 and 1, then nothing."""
    session = ngram_drafter("ngram:n=1", LETTERS, torch.device("cpu")).session(1, 32)
    logits = [session.begin(torch.tensor([0]), ids([1, 2, 1]), torch.tensor([3]))]
    logits += [session.step(torch.tensor([2])), session.step(torch.tensor([1]))]
    proposed = [row.isfinite().nonzero()[:, 1].tolist() for row in logits]
    assert proposed == [[2], [1], []]


@pytest.mark.parametrize("spec", ["ngram:n=0", "ngram:m=3", "ngrams", "ngram:n=x"])
def test_wrong_lookup_options_are_refused(spec: str) -> None:
    with pytest.raises(InputError, match="expected ngram or ngram:n=3"):
        ngram_drafter(spec, LETTERS, torch.device("cpu"))
