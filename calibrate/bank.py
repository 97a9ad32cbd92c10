"""Recorded trajectories: kept one at a time while recording goes on, and put together into a bank of windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from sim.replay.windows import SIGNALS, Table, Windows
from traces.errors import InputError


@dataclass(frozen=True)
class Trajectory:
    """What the target wrote after one prompt, and its windows.

    index     of the prompt
    task      of the prompt
    tokens    int64[T] output tokens, the end token included
    accept    float32[T - 1, K]; row r is the window after output token r, from 0: the first one comes with the prefill
    on, off   signal name -> float32[T - 1, K], as in sim.replay.windows.Windows
    """

    index: int
    task: str
    tokens: NDArray[np.int64]
    accept: Table
    on: dict[str, Table]
    off: dict[str, Table]

    def save(self, path: Path) -> None:
        """Write one .npz file, whole or not at all."""
        arrays: dict[str, Any] = {"index": self.index, "task": self.task, "tokens": self.tokens, "accept": self.accept}
        arrays |= {f"on_{name}": table for name, table in self.on.items()}
        arrays |= {f"off_{name}": table for name, table in self.off.items()}
        scratch = path.with_name(f".{path.name}.tmp.npz")
        try:
            np.savez_compressed(scratch, **arrays)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Trajectory:
        """Read what `save` wrote. Raises InputError if it cannot be read."""
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                on, off = (
                    {name: file[f"{way}_{name}"] for name in SIGNALS if f"{way}_{name}" in file.files}
                    for way in ("on", "off")
                )
                return cls(int(file["index"]), str(file["task"]), file["tokens"], file["accept"], on, off)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise InputError(f"{path}: not a readable trajectory ({error}); delete it to record it again") from None


def assemble(trajectories: Iterable[Trajectory], name: str, notes: Sequence[str] = ()) -> Windows:
    """All windows in order of the prompts. Raises InputError if there is none.

    Texts of one token have no window and are left out, which the notes say.
    """
    ordered = sorted(trajectories, key=lambda trajectory: trajectory.index)
    kept = [trajectory for trajectory in ordered if len(trajectory.accept)]
    if not kept:
        raise InputError(f"acceptance {name}: no text of two tokens or more was written, so there is no window")
    if len(kept) < len(ordered):
        notes = (*notes, f"{len(ordered) - len(kept)} texts ended at their first token and have no window")
    rows = [len(trajectory.accept) for trajectory in kept]
    # texts recorded by an earlier version may lack a signal: then the bank does
    common = [name for name in SIGNALS if all(name in trajectory.on and name in trajectory.off for trajectory in kept)]
    return Windows(
        name=name,
        kind="measured",
        accept=np.concatenate([trajectory.accept for trajectory in kept]),
        on={signal: np.concatenate([trajectory.on[signal] for trajectory in kept]) for signal in common},
        off={signal: np.concatenate([trajectory.off[signal] for trajectory in kept]) for signal in common},
        start=np.concatenate([[0], np.cumsum(rows)[:-1]]).astype(np.int64),
        task=tuple(trajectory.task for trajectory in kept),
        notes=tuple(notes),
    )
