from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from traces import InputError
from traces.tokens import count_tokens


class Words:
    """Stands in for a Hugging Face tokenizer: one token a word."""

    @classmethod
    def from_pretrained(cls, name: str) -> Words:
        if name != "known/id":
            raise OSError(f"{name} is not a local folder\nand a second line")
        return cls()

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[str]]]:
        return {"input_ids": [text.split() + ["<s>"] * add_special_tokens for text in texts]}


def test_estimate_counts_bytes_and_an_empty_text_has_none():
    # ceil(9 / 4.5) = 2, ceil(10 / 4.5) = 3; three CJK characters have 9 bytes
    counts, note = count_tokens(["a" * 9, "a" * 10, "日本語", ""], None)
    assert counts.tolist() == [2, 3, 2, 0]
    assert note.startswith("estimated: 4.5 UTF-8 bytes per token")


def test_hugging_face_tokenizer_without_special_tokens(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=Words))
    counts, note = count_tokens(["one two three"] * 1500, "known/id")  # more than one batch
    assert counts.tolist() == [3] * 1500
    assert note == "counted by tokenizer known/id, without chat template."


def test_unknown_hugging_face_id_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=Words))
    with pytest.raises(InputError, match=r"could not be loaded: unknown/id is not a local folder$"):
        count_tokens(["x"], "unknown/id")


@pytest.mark.parametrize(("tokenizer", "module"), [("some/id", "transformers"), ("tiktoken:gpt2", "tiktoken")])
def test_missing_library_says_what_to_install(monkeypatch, tokenizer, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"{module} is not installed"):
        count_tokens(["x"], tokenizer)
