"""The EAGLE-style draft: what it reads, what it proposes, what is saved."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from traces.errors import InputError

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.eagle import EagleDraft, shape_for
    from calibrate.runner import ModelRunner

    from .random_pairs import LETTERS, gpt2, llama

TOKENS = torch.tensor([2, 3, 5, 7, 11, 13, 17, 19])
HIDDEN = 32  # of the random target


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def draft() -> Any:
    return make(llama(0))


def make(target: Any) -> Any:
    torch.manual_seed(1)
    return EagleDraft(shape_for(target, len(TOKENS)), target, TOKENS).eval()


def inputs(rows: int = 2, length: int = 6) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(LETTERS, (rows, length), generator=generator)
    return tokens, torch.randn(rows, length, HIDDEN, generator=generator)


def test_proposes_the_draft_vocabulary_alone(draft: Any) -> None:
    with torch.no_grad():
        logits = draft(*inputs()).logits
    assert logits.shape == (2, 6, LETTERS)
    proposed = torch.isfinite(logits).all((0, 1)).nonzero().flatten()
    assert proposed.tolist() == TOKENS.tolist()


def test_head_is_the_targets() -> None:
    """The logit of a token is that of the target's head on the draft's state."""
    target = llama(0)
    draft = make(target)
    with torch.no_grad():
        output = draft(*inputs())
        expected = target.lm_head(output.hidden_states)
    torch.testing.assert_close(output.logits[..., TOKENS], expected[..., TOKENS])


def test_weights_of_the_target_are_neither_trained_nor_saved(draft: Any) -> None:
    # H = 32, feed-forward 48, 4 query and 2 KV heads of size 8 (see random_pairs): norms of embedding, state, layer (2)
    # and the end; fc; q and o, k and v; the feed-forward
    own = 5 * 32 + 2 * 32 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48
    assert sum(value.numel() for value in draft.trained().values()) == own
    assert sum(parameter.numel() for parameter in draft.parameters() if parameter.requires_grad) == own


def test_the_state_before_matters(draft: Any) -> None:
    """g_t reads h_{t-1}: another state there changes what is proposed from t on, and nothing earlier."""
    tokens, hidden = inputs(rows=1)
    other = hidden.clone()
    other[:, 3] += 1
    with torch.no_grad():
        difference = (draft(tokens, hidden).hidden_states - draft(tokens, other).hidden_states).abs().amax((0, 2))
    assert (difference > 1e-6).tolist() == [False, False, False, True, True, True]


def test_feeding_back_equals_one_pass(draft: Any) -> None:
    """Step by step over a cache with its own states, or at once with the same states: the same logits."""
    tokens, hidden = inputs(rows=1)
    runner = ModelRunner(draft, max_num_seqs=1, max_model_len=8)
    slot = torch.zeros(1, dtype=torch.long)
    output = runner.forward(tokens[:, :3], slot, slot, hidden=hidden[:, :3])
    fed, stepped = [*hidden[:, :3].unbind(1)], [output.logits[:, -1]]
    for position in range(3, 6):
        fed.append(output.hidden[:, -1])
        output = runner.forward(tokens[:, position : position + 1], slot, slot + position, hidden=fed[-1][:, None])
        stepped.append(output.logits[:, -1])
    mask = torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        at_once = draft(tokens, torch.stack(fed, 1), attention_mask=mask).logits
    torch.testing.assert_close(torch.stack(stepped, 1)[..., TOKENS], at_once[:, 2:][..., TOKENS])


def test_boolean_masks_do_too(draft: Any) -> None:
    tokens, hidden = inputs(rows=1)
    seen = torch.ones(6, 6, dtype=torch.bool).tril()[None, None]
    additive = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    with torch.no_grad():
        found = [draft(tokens, hidden, attention_mask=mask).hidden_states for mask in (seen, additive)]
    torch.testing.assert_close(*found)


def test_saved_and_loaded(draft: Any, tmp_path: Path) -> None:
    draft.save(tmp_path, dtype=torch.float32, about={"target": "letters"})
    loaded = EagleDraft.load(tmp_path, llama(0))
    with torch.no_grad():
        torch.testing.assert_close(loaded(*inputs()).logits, draft(*inputs()).logits, rtol=0, atol=0)
    assert json.loads((tmp_path / "config.json").read_text())["target"] == "letters"


def test_other_architectures() -> None:
    """GPT-2: learned positions, no grouped heads, a feed-forward size that its config leaves open (4 H)."""
    target = gpt2(0)
    draft = make(target)
    size = target.config.hidden_size
    assert draft.shape.intermediate_size == 4 * size
    with torch.no_grad():
        assert draft(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, size)).hidden_states.shape == (1, 2, size)


def test_damage_is_one_line(draft: Any, tmp_path: Path) -> None:
    target = llama(0)
    with pytest.raises(InputError, match=r"no config\.json"):
        EagleDraft.load(tmp_path, target)
    draft.save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="damaged"):
        EagleDraft.load(tmp_path, target)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no model\.safetensors"):
        EagleDraft.load(tmp_path, target)


def test_another_target_is_refused(draft: Any, tmp_path: Path) -> None:
    draft.save(tmp_path)
    with pytest.raises(InputError, match="target_vocab_size 40, this one has 44"):
        EagleDraft.load(tmp_path, llama(0, vocabulary=44))
