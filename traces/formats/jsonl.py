"""JSON and JSON Lines: records with the line they stand on, and fields checked one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from traces.errors import InputError
from traces.files import TextFile
from traces.formats.base import MAX_TIME, MAX_TOKENS


@dataclass(frozen=True)
class Record:
    """One JSON object of a file. `where` is what a message starts with: file and line, or file and item."""

    where: str
    fields: dict[str, object]

    def tokens(self, key: str) -> int:
        value = self._required(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TOKENS:
            raise self.wrong(key, "a whole number of at least 0")
        return value

    def number(self, key: str) -> float:
        value = self._required(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= MAX_TIME:
            raise self.wrong(key, "a number")
        return float(value)

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str):
            raise self.wrong(key, "text")
        return value

    def list(self, key: str) -> list[object]:
        value = self._required(key)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def wrong(self, key: str, expected: str) -> InputError:
        value = json.dumps(self.fields[key], ensure_ascii=False)
        shown = value if len(value) <= 60 else value[:57] + "..."
        return InputError(f"{self.where}: column {key}: value {shown}, expected {expected}")

    def _required(self, key: str) -> object:
        if key not in self.fields:
            raise InputError(f"{self.where}: no column {key}; the columns are {', '.join(self.fields) or 'none'}")
        return self.fields[key]


def records(file: TextFile) -> Iterator[Record]:
    """The objects of a JSON Lines file. Blank lines are skipped. Raises `InputError` at the first broken line."""
    # not splitlines(): U+2028 and its like may stand inside JSON text
    for number, line in enumerate(file.text.split("\n"), start=1):
        if line.strip():
            value = parse(file, line, number)
            if not isinstance(value, dict):
                raise file.error(number, f"expected a JSON object, found {type(value).__name__}")
            yield Record(f"{file.path}:{number}", value)


def parse(file: TextFile, text: str, first_line: int = 1) -> object:
    """`text`, which starts on `first_line` of the file, as JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise file.error(
            first_line + error.lineno - 1, f"not valid JSON at character {error.colno}: {error.msg}"
        ) from None
    except RecursionError:
        raise file.error(first_line, "not valid JSON: nested too deeply") from None
