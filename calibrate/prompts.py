"""Prompts to calibrate on: the embedded set, those of the tiny pair, or a file in one of the usual layouts.

The embedded set (`data/prompts.jsonl`) was written for this project: 12 prompts in each of 8 tasks. Layouts are told
from content, row by row: HumanEval, GSM8K, MT-bench, Vicuna, Spec-Bench, vLLM's custom JSONL, conversations as in
ShareGPT or chat messages, our own, and plain text of one prompt a line; gzipped or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from traces.errors import InputError
from traces.files import TextFile, read_text
from traces.formats.jsonl import Record, parse, records

EMBEDDED = Path(__file__).parent / "data" / "prompts.jsonl"
TINY = "tiny"

USER = ("human", "user")
LAYOUTS = "prompt, turns, question, conversations, messages"


@dataclass(frozen=True)
class Prompt:
    """What a user asks.

    task    what kind of request, as the file calls it (task or category); of HumanEval and GSM8K their names in lower
            case; "" where nothing says so
    text    the user's first turn
    turns   the user's later turns, in order; `render` leaves them out
    """

    task: str
    text: str
    turns: tuple[str, ...] = ()


def load_prompts(source: str | Path | None = None, *, limit: int | None = None, seed: int = 0) -> list[Prompt]:
    """Prompts in an order that takes the tasks in turn, so that any first part of it is even over tasks.

    source  a file; None: the embedded set; "tiny": held-out text of the tiny pair (a file of that name: "./tiny")
    limit   how many at most, >= 1; None: all
    seed    of the order within each task

    Raises InputError in one line that names the file, the line and what was expected there.
    """
    if limit is not None and limit < 1:
        raise InputError(f"limit of prompts: expected a whole number of at least 1, got {limit}")
    if source == TINY:
        from calibrate.tiny import prompts as tiny

        found = [Prompt(document.task, document.prompt) for document in tiny.load()]
    else:
        path = EMBEDDED if source is None else Path(source)
        found = list(read(read_text(path)))
        if not found:
            raise InputError(f"{path}: holds no prompt; expected JSON Lines or one prompt a line")
    return interleave(found, seed)[:limit]


def interleave(prompts: Iterable[Prompt], seed: int = 0) -> list[Prompt]:
    """One prompt of each task in turn, tasks in order of appearance; within a task shuffled by seed."""
    by_task: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_task.setdefault(prompt.task, []).append(prompt)
    for task, own in by_task.items():
        Random(f"{seed}/{task}").shuffle(own)  # adding a task does not reorder the others
    return [prompt for row in zip_longest(*by_task.values()) for prompt in row if prompt is not None]


def read(file: TextFile) -> Iterator[Prompt]:
    """The prompts of a file in its order. Conversations without a word of the user are left out."""
    start = file.text.lstrip()
    if start.startswith("{"):
        rows = records(file)
    elif re.match(r"\[\s*[{\]]", start):  # plain text may begin with a bracket, but hardly with these two
        rows = _items(file)
    else:
        yield from (Prompt("", line.strip()) for line in file.text.split("\n") if line.strip())
        return
    for row in rows:
        turns = _turns(row)
        if turns:
            yield Prompt(_task(row), turns[0], tuple(turns[1:]))


def render(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Token ids of the prompt as the target is to go on from them. `tokenizer` is a Hugging Face one.

    With its chat template as a single user message, up to where the assistant begins; without one as plain text after
    the BOS token, if the tokenizer adds one or has one that is not its end token too. Raises InputError where that
    makes no token.
    """
    if getattr(tokenizer, "chat_template", None):
        message = [{"role": "user", "content": prompt.text}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]  # a template writes its own BOS
    else:
        ids = tokenizer(prompt.text)["input_ids"]
        begin = tokenizer.bos_token_id
        if begin is not None and begin != tokenizer.eos_token_id and ids[:1] != [begin]:
            ids = [begin, *ids]
    if not ids:
        raise InputError(f"prompt {prompt.text!r:.60}: the tokenizer makes no token of it")
    return list(ids)


def _items(file: TextFile) -> Iterator[Record]:
    rows = parse(file, file.text)
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        if not isinstance(row, dict):
            raise InputError(f"{file.path}: item {number}: expected a JSON object, found {type(row).__name__}")
        yield Record(f"{file.path}: item {number}", row)


def _turns(row: Record) -> Sequence[str]:
    """The user's turns; none only in a conversation that has none."""
    for key in ("prompt", "question"):
        if key in row.fields:
            return [_written(row, key, row.fields[key])]
    if "turns" in row.fields:
        turns = [_written(row, "turns", turn) for turn in row.list("turns")]
        if not turns:
            raise row.wrong("turns", "at least one turn")
        return turns
    for key in ("conversations", "messages"):
        if key in row.fields:
            return [text for text in map(_said_by_user, row.list(key)) if text]
    found = ", ".join(row.fields) or "nothing"
    raise InputError(f"{row.where}: no prompt; expected one of the keys {LAYOUTS}, found {found:.60}")


def _written(row: Record, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise row.wrong(key, "text that is not empty")
    return value


def _said_by_user(message: object) -> str:
    """ShareGPT writes from and value, chat messages role and content."""
    if not isinstance(message, dict) or message.get("from", message.get("role")) not in USER:
        return ""
    text = message.get("value", message.get("content"))
    return text if isinstance(text, str) and text.strip() else ""


def _task(row: Record) -> str:
    for key in ("task", "category"):
        if row.fields.get(key) is not None:
            return row.text(key)
    if str(row.fields.get("task_id", "")).startswith("HumanEval"):
        return "humaneval"
    return "gsm8k" if {"question", "answer"} <= row.fields.keys() else ""
