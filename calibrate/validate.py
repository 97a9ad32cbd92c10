"""python -m calibrate.validate --pair NAME --policy A B --request-rate R1 R2 --output DIR: live against simulated."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from calibrate.validation.config import ValidateConfig
from traces.command import parse
from traces.errors import InputError, run_command

DESCRIPTION = (
    "Serve held-out requests with real models, simulate the same requests with a calibration of other prompts, and "
    "report decisions, acceptance length and time, live against simulated, beside what live repeats differ by. "
    "Interrupted validations go on where they stopped."
)


def main(args: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    config = parse(ValidateConfig, "calibrate.validate", DESCRIPTION, args)
    try:
        from calibrate.validation.validation import validate
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed; pip install 'draftlab[calibrate]'") from None
    try:
        document = validate(config, _say)
    except KeyboardInterrupt:
        _say(f"interrupted: what was finished is kept in {config.output}; the same command goes on")
        return 130
    return 1 if config.gate and not document["passed"] else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(run_command(main))
