"""The text of the tiny pair: what is generated does not depend on the process, and held-out text stays held out."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from calibrate.tiny import generated
from calibrate.tiny.corpus import HELD_OUT_ONE_IN, is_held_out
from calibrate.tiny.generated import Document

PRINT_DIGEST = """
import hashlib
from calibrate.tiny import generated
found = hashlib.sha256()
for task in generated.TASKS:
    for document in generated.documents(task, 20_000):
        found.update(document.text.encode())
print(found.hexdigest())
"""


def test_generated_text_is_the_same_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.parametrize("task", generated.TASKS)
def test_prompt_ends_before_white_space(task: str) -> None:
    """So that the tokens of the prompt are the first tokens of the whole text: pre-tokens begin with white space."""
    for document in generated.documents(task, 5_000):
        assert document.completion[0].isspace()
        assert not document.prompt[-1].isspace()


def test_held_out_by_hash_of_the_text() -> None:
    """The hash ends in ...: a multiple of HELD_OUT_ONE_IN is held out, whatever the task."""
    texts = [f"text {number}" for number in range(200)]
    expected = [int(hashlib.sha256(text.encode()).hexdigest(), 16) % HELD_OUT_ONE_IN == 0 for text in texts]
    assert [is_held_out(Document("maths", text[:4], text[4:])) for text in texts] == expected
    assert any(expected)


def test_maths_is_right() -> None:
    """`a + b = c` in an answer holds, for every operator."""
    checked = 0
    for document in generated.documents("maths", 20_000):
        for step in document.completion.replace(".", ";").split(";"):
            left, equals, right = step.partition(" = ")
            if equals and left.strip()[0].isdigit():
                assert eval(left) == int(right), step
                checked += 1
    assert checked > 50
