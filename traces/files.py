"""Reading and writing of text files: UTF-8 and '\\n' on every system, gzip where the file is, nothing half-written."""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class TextFile:
    """A file's text with its name for messages. A byte order mark is gone; line ends are as they were."""

    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.name

    def error(self, line: int, message: str) -> InputError:
        return InputError(f"{self.path}:{line}: {message}")


def read_text(path: Path) -> TextFile:
    """Read a text file, gunzipped where its content (not its name) says so. Raises `InputError`."""
    try:
        content = path.read_bytes()
        if content.startswith(GZIP_MAGIC):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path}: damaged gzip file (cut short, or not gzip to its end)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return TextFile(path, content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}:{line}: byte {content[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing: into a neighbour first, then renamed. Gzipped if the name ends in .gz."""
    content = text.encode("utf-8")
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # no time stamp: same text, same bytes
    write_bytes(path, content)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing. Raises `InputError` if the directory is missing or not writable."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_bytes(content)
        scratch.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        scratch.unlink(missing_ok=True)
