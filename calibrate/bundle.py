"""Windows of a calibration among those that ship: `python -m calibrate.bundle --calibration DIR --name tiny-s`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import sim.replay
from sim.replay import bundled, windows
from sim.replay.profile import Profile
from sim.replay.sources import recorded
from traces.command import parse
from traces.errors import InputError, run_command


@dataclass(frozen=True)
class Command:
    """Which windows, and what they are to be called."""

    calibration: Path
    """directory that python -m calibrate wrote"""
    name: str
    """what --acceptance will call them"""
    licence: str = "Apache-2.0"
    """of the models they were measured with"""


def run(command: Command) -> int:
    """Write sim/replay/acceptance/NAME.npz. Raises InputError for a directory without windows."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", command.name):
        raise InputError(f"--name {command.name}: expected small letters, digits, dots and dashes")
    found = recorded(command.calibration)
    folder = Path(sim.replay.__path__[0]) / bundled.FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{command.name}.npz"
    bundled.write(path, found, command.name, about(command, found))
    written = bundled.read(path)
    print(f"{path.name}: {path.stat().st_size:,} bytes, {len(written.accept):,} windows of {written.depth}")
    return 0


def about(command: Command, found: windows.Windows) -> str:
    """One line on where the windows come from."""
    profile = Profile.load(command.calibration)
    checked = json.loads((command.calibration / "reconciliation.json").read_text(encoding="utf-8"))
    way = f"temperature {found.temperature:g}" if found.temperature else "greedy"
    return (
        f"measured {profile.date} on {profile.device}: {profile.pair}, "
        f"{way}, {len(found.start)} texts, {len(found.accept):,} windows; "
        f"live run at k = {checked['k']}: acceptance length {checked['live_length']:.3f}, from the windows "
        f"{checked['window_length']:.3f}; {command.licence}"
    )


def main(args: list[str] | None = None) -> int:
    """Entry point of `python -m calibrate.bundle`. Returns the exit status."""
    return run_command(
        lambda: run(parse(Command, "calibrate.bundle", "Bundle measured windows with the package.", args))
    )


if __name__ == "__main__":
    sys.exit(main())
