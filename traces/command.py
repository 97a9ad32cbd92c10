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
    options = (tyro.conf.FlagCreatePairsOff, tyro.conf.HelptextFromCommentsOff, tyro.conf.DisallowNone)
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(config, prog=f"python -m {prog}", description=description, args=args, config=options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise InputError(_first_sentence(captured.getvalue(), prog)) from None


def _first_sentence(box: str, prog: str) -> str:
    """The message inside tyro's error box, without frame, title, help text and rules.

    The box is drawn with lines or, where the terminal's encoding lacks them, with dashes; either way the message stands
    between the first rule and the second.
    """
    rules, message = 0, []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines():
        content = line.strip("│ ")
        if line.startswith(("╭", "╰")) or (content and not content.strip("-─")):
            rules += 1
        elif rules == 1 and content:
            message.append(content)
    sentence = " ".join(message)
    wrong_type = re.match(r"Error parsing (--\S+): .*?(INT|FLOAT).*? instantiated from \['(.*?)'\]", sentence)
    if wrong_type:
        flag, kind, value = wrong_type.groups()
        sentence = f"{flag} {value}: expected {'a whole number' if kind == 'INT' else 'a number'}"
    return f"{sentence} (see python -m {prog} --help)"
