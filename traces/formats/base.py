"""What a trace format is: how to recognise it, read it and, where it can hold a workload, write it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.files import TextFile
from traces.options import TraceOptions
from traces.workload import PrefixBlocks, Workload

Content = Literal["CSV", "JSON Lines", "a JSON array", "a JSON object"]

HEAD_LINES = 20
ZERO_PROMPT = "0 prompt tokens"
MAX_TOKENS = 10**9  # a length beyond this is a time stamp in the wrong column
MAX_TIME = 1e30  # in any unit; differences of times stay finite


@dataclass
class Rows:
    """Requests as a file lists them: unsorted, lengths of 0 still in. arrival_s counts from any origin, or is None."""

    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    arrival_s: NDArray[np.float64] | None = None
    task: Sequence[str] | None = None
    prefix_blocks: PrefixBlocks | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def drop_zero_lengths(self, zero_output: str) -> Rows:
        """Without the rows that are no requests, each counted under one reason; an output of 0 is looked at first."""
        no_output = self.output_tokens == 0
        no_prompt = (self.prompt_tokens == 0) & ~no_output
        dropped = dict(self.dropped)
        for reason, mask in ((zero_output, no_output), (ZERO_PROMPT, no_prompt)):
            if mask.any():
                dropped[reason] = dropped.get(reason, 0) + int(mask.sum())
        kept = self.take(np.flatnonzero(~(no_output | no_prompt)))
        kept.dropped = dropped
        return kept

    def take(self, rows: NDArray[np.int64]) -> Rows:
        return Rows(
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            arrival_s=None if self.arrival_s is None else self.arrival_s[rows],
            task=None if self.task is None else [self.task[row] for row in rows.tolist()],
            prefix_blocks=None if self.prefix_blocks is None else self.prefix_blocks.take(rows),
            dropped=self.dropped,
            notes=self.notes,
        )


class TraceFormat:
    """One file format. Stateless; `FORMATS` holds the classes by name.

    summary      one line for the help
    content      what kind of text the format is, compared with what the file holds before `read` is called
    options      fields of `TraceOptions` that only some formats understand, and this one does
    zero_output  what a row of 0 output tokens is counted as; no such row is a request, in any format
    keeps        columns of a workload, beyond the lengths, that survive `write`
    """

    summary: ClassVar[str]
    content: ClassVar[Content]
    options: ClassVar[frozenset[str]] = frozenset()
    zero_output: ClassVar[str] = "0 output tokens"
    keeps: ClassVar[frozenset[str]] = frozenset()

    def recognises(self, head: Head) -> bool:
        raise NotImplementedError

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        """Raises `InputError` with file, line, column and value for anything that is not a request of this format."""
        raise NotImplementedError

    def write(self, workload: Workload) -> str:
        raise InputError(f"{type(self).__name__} holds text, which a workload does not have; it can only be read")


@dataclass(frozen=True)
class Head:
    """The beginning of a file, looked at once: its kind of content and the names in it.

    names     header of a CSV as written; keys of the first record of JSON Lines; all keys near the start of other JSON
    records   the first records of JSON Lines
    one_line  whether there is but one line: a JSON object may then be JSON Lines with one record
    """

    content: Content
    names: frozenset[str]
    records: tuple[dict[str, object], ...] = ()
    one_line: bool = False

    def may_be(self, content: Content) -> bool:
        return content == self.content or (
            content == "JSON Lines" and self.content == "a JSON object" and self.one_line
        )


def look_at(file: TextFile) -> Head:
    """Tell the kind of content by its first characters and lines. Raises `InputError` for an empty file."""
    text = file.text.lstrip()
    if not text:
        raise InputError(f"{file.path}: the file is empty")
    if text[0] not in "[{":
        return Head("CSV", frozenset(cell.strip().strip('"') for cell in text.split("\n", 1)[0].split(",")))
    keys = frozenset(re.findall(r'"(\w+)"\s*:', text[:100_000]))
    if text[0] == "[":
        return Head("a JSON array", keys)
    lines = [line for line in text.split("\n", HEAD_LINES)[:HEAD_LINES] if line.strip()]
    records = tuple(record for line in lines if isinstance(record := _parsed(line), dict))
    # a second line that opens an object tells JSON Lines even where the first line is broken
    if len(lines) > 1 and (records or lines[1].startswith("{")):
        return Head("JSON Lines", frozenset(records[0]) if records else keys, records)
    return Head("a JSON object", keys, records, one_line=len(lines) == 1)


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
