"""Command lines generated from a frozen dataclass: the fields are the flags, their docstrings the help."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from traces.errors import InputError

Config = TypeVar("Config")


def parse(config: type[Config], prog: str, description: str, args: Sequence[str] | None = None) -> Config:
    """Parse `args` (default: sys.argv[1:]) into `config`. A wrong command line raises `InputError` with one line."""
    import tyro

    _refuse_empty(sys.argv[1:] if args is None else args, prog)
    captured = io.StringIO()
    options = (tyro.conf.FlagCreatePairsOff, tyro.conf.HelptextFromCommentsOff, tyro.conf.DisallowNone)
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(config, prog=f"python -m {prog}", description=description, args=args, config=options)
    except SystemExit as exit_:
        if exit_.code in (0, None):
            raise
        raise InputError(_first_sentence(captured.getvalue(), prog)) from None


def at_least(config: object, **bounds: int) -> None:
    """Check whole numbers of a configuration by field name. Raises InputError that names the flag."""
    for name, bound in bounds.items():
        if (value := getattr(config, name)) < bound:
            raise InputError(f"--{name.replace('_', '-')} {value}: expected a whole number of at least {bound}")


def _refuse_empty(args: Sequence[str], prog: str) -> None:
    """An empty word is a variable of the shell that is not set; as a path it would be the working directory."""
    for before, word in pairwise(["an argument", *args]):
        if not word or (word.startswith("--") and word.endswith("=")):
            raise InputError(f"{word[:-1] or before}: expected a value, got an empty one (see python -m {prog} --help)")


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
    sentence = re.sub(r"(?<=Expected one of )\(.*?\)", _choices, " ".join(message))
    wrong_type = re.match(r"Error parsing (--\S+): .*?(INT|FLOAT).*? instantiated from \['(.*?)'\]", sentence)
    if wrong_type:
        flag, kind, value = wrong_type.groups()
        sentence = f"{flag} {value}: expected {'a whole number' if kind == 'INT' else 'a number'}"
    return f"{sentence} (see python -m {prog} --help)"


def _choices(found: re.Match[str]) -> str:
    """tyro's list of choices in one order, without the None that stands for leaving the flag out."""
    return ", ".join(sorted(set(re.findall(r"'(.*?)'", found[0])) - {"None"}))
