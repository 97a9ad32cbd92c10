"""The committed tiny pair: files, models, vocabularies, acceptance, and a training that repeats bit for bit."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from calibrate.tiny import DRAFTS, MODELS, learn, measure, model, prompts
    from calibrate.tiny.recipe import Schedule, Shape

NAMES = ("target", *DRAFTS)
LARGEST_BYTES = 12_000_000


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {name: AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32).eval() for name in NAMES}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Any]:
    return {name: AutoTokenizer.from_pretrained(MODELS / name) for name in NAMES}


def test_files_match_their_sums() -> None:
    lines = (MODELS / model.SUMS).read_text(encoding="utf-8").splitlines()
    listed = dict(reversed(line.split("  ", 1)) for line in lines)
    found = {name: hashlib.sha256((MODELS / name).read_bytes()).hexdigest() for name in listed}
    assert found == listed
    assert {f"{name}/model.safetensors" for name in NAMES} <= set(listed)


def test_files_are_small() -> None:
    assert sum(path.stat().st_size for path in MODELS.rglob("*") if path.is_file()) < LARGEST_BYTES


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # embedding + layers * (4 attention matrices + 3 of the feed-forward + 2 norms) + last norm
        ("target", 2048 * 144 + 12 * (4 * 144**2 + 3 * 144 * 384 + 2 * 144) + 144),
        ("draft-s", 2048 * 96 + 1 * (4 * 96**2 + 3 * 96 * 256 + 2 * 96) + 96),
        ("draft-m", 2048 * 144 + 2 * (4 * 144**2 + 3 * 144 * 384 + 2 * 144) + 144),
    ],
)
def test_parameter_counts(models: dict[str, Any], name: str, expected: int) -> None:
    assert sum(parameter.numel() for parameter in models[name].parameters()) == expected


def test_vocabularies_agree(models: dict[str, Any], tokenizers: dict[str, Any]) -> None:
    vocabulary = tokenizers["target"].get_vocab()
    assert all(tokenizers[name].get_vocab() == vocabulary for name in NAMES)
    assert {models[name].config.vocab_size for name in NAMES} == {len(vocabulary)}


@pytest.mark.parametrize("text", ["def f(x):\n    return x + 12", "naïve – 東京 \t end", " leading and trailing  "])
def test_tokenizer_is_lossless(tokenizers: dict[str, Any], text: str) -> None:
    tokenizer = tokenizers["target"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_acceptance_is_in_the_wanted_range(models: dict[str, Any], tokenizers: dict[str, Any]) -> None:
    """Four held-out prompts of every task; the ranges are wider than those of the full evaluation by its spread."""
    every = prompts.load()
    chosen = [document.prompt for document in every[:: prompts.PER_TASK // 4]]
    found = measure.continuations(models["target"], tokenizers["target"], chosen, temperature=1.0)
    wanted = measure.log_probabilities(models["target"], found)
    acceptance = {d: measure.agreement(wanted, measure.log_probabilities(models[d], found))[0] for d in DRAFTS}
    assert 0.60 <= acceptance["draft-s"] <= 0.88
    assert 0.78 <= acceptance["draft-m"] <= 0.97
    assert acceptance["draft-s"] < acceptance["draft-m"]


def test_a_model_accepts_itself(models: dict[str, Any], tokenizers: dict[str, Any]) -> None:
    """sum of min(p, p) = 1."""
    found = measure.continuations(models["draft-s"], tokenizers["draft-s"], ["Question: 2", "The"], temperature=1.0)
    own = measure.log_probabilities(models["draft-s"], found)
    assert measure.agreement(own, own) == (pytest.approx(1.0, abs=1e-5), 1.0)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([*range(64)], False),
        ([1, 2, 3] * 3, False),  # nine tokens are short of twelve
        ([7, *([1, 2, 3, 4] * 3)], True),
        ([9] * 12, True),
        ([*range(21)] * 3, False),  # longer than LONGEST_PERIOD
    ],
)
def test_loops(tokens: list[int], expected: bool) -> None:
    assert measure.loops(tokens) is expected


def trained() -> str:
    """Digest of the weights after five steps, copying and both lengths of rows among them."""
    schedule = Schedule(steps=3, copying=2, warm_up=2)
    tokens = np.random.default_rng(0).integers(3, 2048, 5_000).astype(np.uint16)
    small = model.make(Shape(width=48, layers=2, heads=3, feed_forward=96), seed=5)
    learn.fit("small", small, learn.text_loss(tokens, schedule), schedule, learn.Log())
    return model.weights_digest(small)


def test_training_repeats_bit_for_bit() -> None:
    learn.use_one_thread()
    assert trained() == trained()
