"""Pairs by name, directory and specification; what a user can get wrong is one line."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    from calibrate import loading
    from calibrate.pairs import check_vocabularies, common_vocabulary, load_pair
    from calibrate.tiny import MODELS
    from sim.replay.profile import DRAFT_KINDS
    from traces.errors import InputError

    from .random_pairs import LETTERS, Letters


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    """A copy of draft-s."""
    return shutil.copytree(MODELS / "draft-s", tmp_path / "draft")


def refused(*args: str, **settings: str) -> str:
    with pytest.raises(InputError) as caught:
        load_pair(*args, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "kind"), [(None, "autoregressive"), ("draft-m", "autoregressive"), ("skip:3,5", "early-exit")]
)
def test_drafts_of_the_tiny_pair(name: str | None, kind: str) -> None:
    """Its end token is 2 and its vocabulary 2,048, as its config says."""
    found = load_pair("tiny", name)
    assert found.drafter.kind == kind
    assert kind in DRAFT_KINDS
    assert found.end_tokens == {2}
    assert found.vocab_size == 2048


def test_lookup_has_no_model() -> None:
    found = load_pair("tiny", "ngram")
    assert (found.drafter.kind, found.drafter.model) == ("ngram", None)


def test_directories_are_taken_too(draft: Path) -> None:
    found = load_pair(str(MODELS / "target"), str(draft))
    assert found.drafter.kind == "autoregressive"
    assert found.dtype == torch.float32


def test_dtype_is_that_of_both_models() -> None:
    found = load_pair("tiny", dtype="bfloat16")
    assert {found.dtype, found.drafter.model.dtype} == {torch.bfloat16}


def test_draft_of_another_target_needs_a_name() -> None:
    assert refused(str(MODELS / "target")).startswith("--draft is missing")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "a/b/c", ""])
def test_missing_directory(name: str) -> None:
    assert refused(name, "ngram").endswith("no such directory")


def test_directory_without_a_model(tmp_path: Path) -> None:
    assert "no config.json there" in refused(str(tmp_path), "ngram")


def test_missing_weight_file(draft: Path) -> None:
    (draft / "model.safetensors").unlink()
    assert "model.safetensors" in refused("tiny", str(draft))


def test_missing_tensor(draft: Path) -> None:
    """transformers would fill it with random numbers and only warn."""
    weights = load_file(draft / "model.safetensors")
    weights.pop("model.layers.0.mlp.up_proj.weight")
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
    assert "lack 1 tensors of the model, as model.layers.0.mlp.up_proj.weight" in refused("tiny", str(draft))


def test_damaged_weight_file(draft: Path) -> None:
    path = draft / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert "the model cannot be loaded" in refused("tiny", str(draft))


def test_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_local_only", lambda source: True)
    assert refused("nobody/nothing", "ngram").endswith("not in the cache, and the hub cannot be reached")


def test_cuda_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "finds no GPU here; use --device cpu" in refused(device="cuda")


@pytest.mark.parametrize(
    ("settings", "expected"), [({"device": "tpu9"}, "--device tpu9"), ({"dtype": "int8"}, "--dtype")]
)
def test_unknown_device_and_dtype(settings: dict[str, str], expected: str) -> None:
    assert refused(**settings).startswith(expected)


def test_vocabularies_that_differ_are_refused_with_an_example() -> None:
    class Swapped(Letters):
        def get_vocab(self) -> dict[str, int]:
            return super().get_vocab() | {"A": 1, "B": 0}

    with pytest.raises(InputError, match="2 tokens differ, as 'A', which is 1 in the draft and 0 in the target"):
        check_vocabularies(Letters(), Swapped(), "target", "draft")


@pytest.mark.parametrize(("widths", "expected"), [((LETTERS, LETTERS + 8), LETTERS), ((LETTERS + 4,), LETTERS)])
def test_logits_beyond_the_tokenizer_are_padding(widths: tuple[int, ...], expected: int) -> None:
    """F44."""
    assert common_vocabulary(Letters(), *widths) == expected


def test_fewer_logits_than_tokens_are_refused() -> None:
    with pytest.raises(InputError, match="ids up to 39, a model only 38 logits"):
        common_vocabulary(Letters(), LETTERS, LETTERS - 2)


@pytest.mark.parametrize(("found", "expected"), [(2, {2}), ([2, 7], {2, 7}), (None, set())])
def test_end_tokens(found: Any, expected: set[int]) -> None:
    class Holder:
        eos_token_id = found

    class Model:
        config = Holder()

    assert loading.end_tokens(Model(), Letters()) == expected
