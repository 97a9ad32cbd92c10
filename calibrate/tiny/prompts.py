"""Held-out documents of the tiny pair, committed as models/prompts.jsonl: any Python evaluates on the same text."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from calibrate.tiny import MODELS
from calibrate.tiny.corpus import TASKS
from calibrate.tiny.generated import Document

FILE = "prompts.jsonl"
PER_TASK = 32
SHORTEST = 100  # characters of prose and code to be continued: enough to see a loop
LONGEST = 800  # of any completion that is kept


def choose(held_out: tuple[Document, ...]) -> list[Document]:
    """The first PER_TASK held-out documents of every task; long completions are cut."""
    chosen: list[Document] = []
    for task in TASKS:
        shortest = SHORTEST if task in ("prose", "code") else 1
        fitting = [found for found in held_out if found.task == task and len(found.completion) >= shortest]
        chosen += [Document(task, found.prompt, found.completion[:LONGEST]) for found in fitting[:PER_TASK]]
    return chosen


def save(documents: list[Document], directory: Path) -> None:
    lines = (json.dumps(asdict(document), ensure_ascii=False) + "\n" for document in documents)
    (directory / FILE).write_text("".join(lines), encoding="utf-8")


def load(directory: Path = MODELS) -> list[Document]:
    """Documents in order of task."""
    lines = (directory / FILE).read_text(encoding="utf-8").split("\n")
    return [Document(**json.loads(line)) for line in lines if line]
