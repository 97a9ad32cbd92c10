"""The journal of a sweep: one line of JSON per finished run, appended and flushed, so that a crash loses none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from traces.errors import InputError

JOURNAL = "runs.jsonl"


class Journal:
    """Rows by the key of their run. One process writes it at a time; a line that was cut off by a crash is dropped."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / JOURNAL
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise InputError(f"cannot write to {directory}: {error.strerror or error}") from None
        try:
            _lock(self._file.fileno(), directory)
            self.rows = self._read()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, row: dict[str, Any]) -> None:
        """On the disk when it returns."""
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.rows[row["run"]] = row

    def _read(self) -> dict[str, dict[str, Any]]:
        self._file.seek(0)
        whole, _, cut_off = self._file.read().rpartition(b"\n")
        if cut_off:
            self._file.truncate(len(whole) + bool(whole))
        rows = {}
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                rows[row["run"]] = row
            except (ValueError, TypeError, KeyError):
                raise InputError(f"{self.path}: line {number} is no run of a sweep") from None
        return rows


def _lock(descriptor: int, directory: Path) -> None:
    """Keep a second sweep out, where the system can; the lock ends with the process."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputError(f"another sweep is writing to {directory}; name another --output-dir") from None
