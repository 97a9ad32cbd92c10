"""Command lines generated from a frozen dataclass: the fields are the flags, their docstrings the help."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from typing import TypeVar

from traces.errors import InputError

Config = TypeVar("Config")


def parse(config: type[Config], prog: str, description: str, args: Sequence[str] | None = None) -> Config:
    """Parse `args` (default: sys.argv[1:]) into `config`. A wrong command line raises `InputError` with one line."""
    import tyro

    captured = io.StringIO()
    options = (tyro.conf.FlagCreatePairsOff, tyro.conf.HelptextFromCommentsOff)
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(config, prog=prog, description=description, args=args, config=options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise InputError(_first_sentence(captured.getvalue(), prog)) from None


def _first_sentence(box: str, prog: str) -> str:
    """The message inside tyro's framed, wrapped error box, without frame, help text and rules."""
    body: list[str] = []
    for line in box.splitlines():
        if re.match(r"│ ─+ │", line):
            break
        if line.startswith("│"):
            body.append(line.strip("│ "))
    return f"{' '.join(body)} (see python -m {prog} --help)"
