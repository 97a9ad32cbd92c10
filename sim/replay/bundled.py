"""Recorded acceptance that ships with the package: windows of small pairs, measured by `python -m calibrate`.

One compressed .npz a bank, made by `python -m calibrate.bundle`: tables as float16 (three digits), row by row, so that
windows that slide along a text compress to little more than the text's own values.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from sim.replay.windows import SIGNALS, Windows
from traces.errors import InputError

DEFAULT = "smollm2-skip"
"""What `sim` replays if nothing is said: real text of a real instruction model, neither an easy nor a hard draft."""
STAND_IN = (
    "recorded acceptance is that of its own pair; for any other it is a stand-in, not tilted since no rate per token "
    "is published for the default pair: compare policies with it, do not predict a latency"
)
FOLDER = "acceptance"
LARGEST = float(np.finfo(np.float16).max)


def names() -> tuple[str, ...]:
    """Of the banks, the default first."""
    found = (entry.name.removesuffix(".npz") for entry in _folder().iterdir() if entry.name.endswith(".npz"))
    return tuple(sorted(found, key=lambda name: (name != DEFAULT, name)))


def load(name: str) -> Windows:
    """A bank by name. Raises InputError for one that does not ship."""
    if name not in names():
        raise InputError(f"acceptance {name!r} does not ship with the package; these do: {', '.join(names())}")
    with resources.as_file(_folder() / f"{name}.npz") as path:
        return read(path)


def about(name: str) -> str:
    """Where a bank comes from, in one line."""
    with resources.as_file(_folder() / f"{name}.npz") as path, np.load(path) as file:
        return str(_about(file)["about"])


def read(path: Path) -> Windows:
    """Windows of a file that `write` made."""
    with np.load(path) as file:
        document = _about(file)
        tables = {key: file[key].astype(np.float32) for key in file.files if key not in ("about", "start")}
        return Windows(
            name=document["name"],
            kind="measured",
            accept=tables["accept"],
            on={signal: tables[signal] for signal in SIGNALS if signal in tables},
            off={signal: tables[f"off_{signal}"] for signal in SIGNALS if f"off_{signal}" in tables},
            start=file["start"],
            task=tuple(document["task"]),
            notes=(document["about"], STAND_IN, *document["notes"]),
            pair=document["pair"],
            temperature=document["temperature"],
        )


def write(path: Path, windows: Windows, name: str, about: str) -> None:
    """Windows as a bank, whole or not at all. about: what was measured, with what, when, under which licence."""
    document: dict[str, Any] = {"name": name, "about": about, "notes": windows.notes, "task": windows.task}
    document |= {"pair": windows.pair, "temperature": windows.temperature}
    tables = {"accept": windows.accept, **windows.on, **{f"off_{key}": table for key, table in windows.off.items()}}
    arrays: dict[str, Any] = {key: np.minimum(table, LARGEST).astype(np.float16) for key, table in tables.items()}
    arrays["start"] = windows.start
    arrays["about"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    scratch = path.with_name(f".{path.name}.tmp.npz")
    try:
        np.savez_compressed(scratch, **arrays)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _about(file: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file["about"].tobytes())
    return document


def _folder() -> Any:
    return resources.files("sim.replay") / FOLDER
