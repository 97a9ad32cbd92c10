"""The one exception for what a user can mend, and the one place that turns it into a line and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable


class InputError(ValueError):
    """A mistake in the user's input. The message is one line: what is wrong, where, and what would be right."""


def run_command(main: Callable[[], int | None]) -> int:
    """Run a command-line entry point and return its exit status.

    `InputError` becomes one line on standard error and status 2, Ctrl-C status 130, a closed pipe status 0.
    """
    try:
        return main() or 0
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; silence the interpreter's own complaint at exit
        return 0
