"""CSV with a header: columns by name, whole at once, and the exact cell where a value is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from traces.files import TextFile
from traces.formats.base import MAX_TIME, MAX_TOKENS

T = TypeVar("T")


class Table:
    """The rows of a CSV file. Blank lines are skipped, columns are found by name, unknown ones ignored."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        reader = csv.reader(io.StringIO(file.text, newline=""))
        self.rows: list[list[str]] = []
        self.lines: list[int] = []
        try:
            for row in reader:
                if row and (len(row) > 1 or row[0].strip()):
                    self.rows.append(row)
                    self.lines.append(reader.line_num)
        except csv.Error as error:
            raise file.error(reader.line_num, f"not valid CSV: {error}") from None
        if not self.rows:
            raise file.error(1, "expected a header with the names of the columns")
        self.header = [cell.strip() for cell in self.rows.pop(0)]
        self.header_line = self.lines.pop(0)
        width = len(self.header)
        for line, row in zip(self.lines, self.rows, strict=True):
            if len(row) != width:
                raise file.error(line, f"the row has {len(row)} columns, expected {width} as in the header")

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, *spellings: str) -> int | None:
        """Index of the first column with one of the names; case, spaces and underscores do not matter."""
        names = [simplified(name) for name in self.header]
        wanted = [simplified(spelling) for spelling in spellings]
        return next((names.index(name) for name in wanted if name in names), None)

    def require(self, *spellings: str) -> int:
        index = self.find(*spellings)
        if index is None:
            raise self.file.error(
                self.header_line, f"no column {' or '.join(spellings)}; the header is {','.join(self.header)}"
            )
        return index

    def tokens(self, column: int) -> NDArray[np.int64]:
        """A column of token counts, whole numbers of at least 0."""
        cells = [row[column] for row in self.rows]
        try:
            counts = np.fromiter(map(int, cells), np.int64, len(cells))
            if not len(counts) or (counts.min() >= 0 and counts.max() <= MAX_TOKENS):
                return counts
        except (ValueError, OverflowError):
            pass
        return np.array(self._convert(column, token_count, "a whole number of at least 0"), np.int64)

    def times_s(self, column: int, unit_s: float = 1.0) -> NDArray[np.float64]:
        """A column of times in seconds: numbers times `unit_s`, or dates (all digits of the second kept, from the
        earliest row on)."""
        cells = [row[column] for row in self.rows]
        try:
            times = np.fromiter(map(float, cells), np.float64, len(cells))
            if (np.abs(times) <= MAX_TIME).all():  # False for NaN too
                return times * unit_s
        except ValueError:
            pass
        # the first cell decides whether a bad one should have been a number or a date
        if _is(float, cells[0]):
            return np.array(self._convert(column, finite_number, "a number")) * unit_s
        nanoseconds = np.array(self._convert(column, date_ns, "a date like 2023-11-16 18:15:46.68"), np.int64)
        since_first: NDArray[np.float64] = (nanoseconds - nanoseconds.min()) / 1e9
        return since_first

    def texts(self, column: int) -> list[str]:
        return [row[column].strip() for row in self.rows]

    def _convert(self, column: int, convert: Callable[[str], T], expected: str) -> list[T]:
        values = []
        for line, row in zip(self.lines, self.rows, strict=True):
            try:
                values.append(convert(row[column]))
            except (ValueError, OverflowError):
                raise self.file.error(
                    line, f"column {self.header[column]}: value {row[column]!r}, expected {expected}"
                ) from None
        return values


def simplified(name: str) -> str:
    return name.lower().replace(" ", "").replace("_", "")


def token_count(cell: str) -> int:
    """A whole number, also where pandas wrote it as `374.0`."""
    number = float(cell)
    if not (number.is_integer() and 0 <= number <= MAX_TOKENS):
        raise ValueError
    return int(number)


def finite_number(cell: str) -> float:
    number = float(cell)
    if not abs(number) <= MAX_TIME:  # NaN included
        raise ValueError
    return number


def date_ns(cell: str) -> int:
    """Nanoseconds since 1970 of an ISO date and time with up to 9 decimals; without an offset it is taken as UTC."""
    text = cell.strip()
    whole, point, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if point else ""
    moment = datetime.fromisoformat(whole + rest[len(digits) :])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = round(moment.timestamp())
    if abs(seconds) >= 2**62 // 10**9:
        raise ValueError  # beyond 1824 to 2116 the difference of two dates need not fit into 64 bits
    return seconds * 10**9 + int((digits + "0" * 9)[:9])


def _is(convert: Callable[[str], object], cell: str) -> bool:
    try:
        convert(cell)
    except ValueError:
        return False
    return True


def write_table(header: Sequence[str], columns: Sequence[Sequence[object]]) -> str:
    """CSV text with '\\n' line ends."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue()
