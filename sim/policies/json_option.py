"""Policy options that are JSON: tables as engines take them, written on the command line or kept in a file."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from traces.errors import InputError


def load_json(text: str, what: str) -> Any:
    """The JSON value in `text` if it starts with [ or {, else in the file of that name. Raises InputError.

    Where there is no such file, a string or a number is a value too, for the caller to refuse as such.
    """
    inline = text.lstrip()[:1] in ("[", "{")
    try:
        return json.loads(text if inline else Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        with contextlib.suppress(ValueError):
            return json.loads(text)
        raise InputError(f"{what}: {text!r} is neither JSON nor a file that can be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no JSON, or no text
        raise InputError(f"{what}: {'the text' if inline else text} is no JSON: {error}") from None
