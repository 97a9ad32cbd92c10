"""How many tokens a text has: counted by a tokenizer where one is given, otherwise estimated and said so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError

BYTES_PER_TOKEN = 4.5
"""UTF-8 bytes per token of Llama-3 on English prompts: 4.5 over the 480 Spec-Bench questions (4.1 on mathematics, 4.7
on news). Bytes, not characters: a CJK character has three bytes and about one token, so one ratio serves both."""

BATCH = 1000


def count_tokens(texts: Sequence[str], tokenizer: str | None) -> tuple[NDArray[np.int64], str]:
    """Tokens of each text (0 only for an empty one), and how they were counted, to end a sentence with. shape: [n].

    tokenizer: Hugging Face id or directory, `tiktoken:NAME`, or None for the estimate. Text only, without special
    tokens or chat template. Raises `InputError` if the tokenizer cannot be had.
    """
    if tokenizer is None:
        sizes = np.array([len(text.encode("utf-8", "surrogatepass")) for text in texts], np.float64)
        counts = np.ceil(sizes / BYTES_PER_TOKEN).astype(np.int64)
        return counts, f"estimated: {BYTES_PER_TOKEN} UTF-8 bytes per token; --tokenizer counts them."
    count = _tiktoken(tokenizer) if tokenizer.startswith("tiktoken:") else _hugging_face(tokenizer)
    lengths = [n for start in range(0, len(texts), BATCH) for n in count(texts[start : start + BATCH])]
    return np.array(lengths, np.int64), f"counted by tokenizer {tokenizer}, without chat template."


def _tiktoken(tokenizer: str) -> Callable[[Sequence[str]], list[int]]:
    name = tokenizer.removeprefix("tiktoken:")
    try:
        import tiktoken
    except ImportError:
        raise InputError(f"--tokenizer {tokenizer}: tiktoken is not installed (pip install tiktoken)") from None
    try:
        encoding = tiktoken.get_encoding(name)
    except ValueError:
        known = ", ".join(tiktoken.list_encoding_names())
        raise InputError(f"--tokenizer {tokenizer}: no such encoding; known: {known}") from None
    except Exception as error:  # the vocabulary is downloaded on first use; whatever fails there is the network's
        raise InputError(f"--tokenizer {tokenizer}: its vocabulary could not be loaded: {_first_line(error)}") from None
    return lambda texts: [len(ids) for ids in encoding.encode_ordinary_batch(list(texts))]


def _hugging_face(tokenizer: str) -> Callable[[Sequence[str]], list[int]]:
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise InputError(f"--tokenizer {tokenizer}: transformers is not installed (pip install transformers)") from None
    try:
        encode: Any = AutoTokenizer.from_pretrained(tokenizer)
    except Exception as error:  # an unknown id, no network, a broken directory: transformers raises many kinds
        raise InputError(f"--tokenizer {tokenizer}: could not be loaded: {_first_line(error)}") from None
    return lambda texts: [len(ids) for ids in encode(list(texts), add_special_tokens=False)["input_ids"]]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
