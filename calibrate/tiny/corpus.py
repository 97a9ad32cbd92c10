"""The frozen training text: `python -m calibrate.tiny.corpus` prints its shares and hashes.

Seven tasks; one document in HELD_OUT_ONE_IN is held out, chosen by the hash of its text, so that equal texts are never
on both sides. The token file is the training part, shuffled once and encoded; its sha256 says whether this Python
carries the text that the committed models were trained on.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from calibrate.tiny import generated, library
from calibrate.tiny.generated import Document

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

# characters per task; prose is all that Python carries, code is cut
SIZES = {"code": 3_000_000, "maths": 600_000, "table": 900_000, "story": 700_000, "dialogue": 900_000, "copy": 600_000}
TASKS = ("prose", *SIZES)
HELD_OUT_ONE_IN = 20
VOCABULARY = 2048
PAD, BEGIN, END = "<|pad|>", "<|begin|>", "<|end|>"
PAD_ID, BEGIN_ID, END_ID = 0, 1, 2


@dataclass(frozen=True)
class Corpus:
    """Training documents in the order in which they are read, and held-out ones."""

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]


def is_held_out(document: Document) -> bool:
    return int(hashlib.sha256(document.text.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0


@cache
def corpus() -> Corpus:
    """All documents, shuffled once by a fixed seed."""
    documents = library.prose()
    for task, characters in SIZES.items():
        documents += _cut(library.code(), characters) if task == "code" else generated.documents(task, characters)
    Random("draftlab tiny order").shuffle(documents)
    held_out = tuple(document for document in documents if is_held_out(document))
    return Corpus(tuple(document for document in documents if not is_held_out(document)), held_out)


def _cut(documents: list[Document], characters: int) -> list[Document]:
    """A random part of `documents` of at least `characters`: not the first files of the alphabet."""
    Random("draftlab tiny code").shuffle(documents)
    kept, length = [], 0
    for document in documents:
        if length >= characters:
            break
        kept.append(document)
        length += len(document.text)
    return kept


def train_tokenizer(documents: tuple[Document, ...]) -> Tokenizer:
    """Byte-level BPE; digits stand alone, so that sums can be learnt."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BEGIN, END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((document.text for document in documents), trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, documents: tuple[Document, ...]) -> NDArray[np.uint16]:
    """The token file: BEGIN, text, END of every document, one after another. Shape (tokens,)."""
    tokens: list[int] = []
    for encoded in tokenizer.encode_batch([document.text for document in documents]):
        tokens += [BEGIN_ID, *encoded.ids, END_ID]
    return np.array(tokens, dtype="<u2")


def digest(tokens: NDArray[np.uint16]) -> str:
    """sha256 of the token file (little-endian 16-bit integers)."""
    return hashlib.sha256(tokens.tobytes()).hexdigest()


def main() -> int:
    found = corpus()
    tokenizer = train_tokenizer(found.training)
    tokens = encode(tokenizer, found.training)
    for name, documents in (("training", found.training), ("held out", found.held_out)):
        characters: Counter[str] = Counter()
        for document in documents:
            characters[document.task] += len(document.text)
        print(f"{name:9}", *(f"{task} {characters[task]:,}" for task in TASKS), "characters")
    print(f"Python {sys.version.split()[0]}, {len(tokens):,} training tokens, sha256 {digest(tokens)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
