"""Acceptance windows: what a draft and a target said about recorded text, in the form in which it is replayed.

Row t of a trajectory is the window of K tokens that the draft proposes after the first t output tokens. As long as
every token is accepted the window runs along the trajectory; after a rejection the draft goes on from a token that the
target did not want, and what it says there depends only on where that was: the `off_*` tables. A window in a step is
therefore the on-trajectory row up to and including the first rejection, and the off-trajectory row of that position
after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.parquet import read_parquet, write_parquet

if TYPE_CHECKING:
    import pandas as pd

Table = NDArray[np.float32]

SIGNALS = ("draft_entropy", "draft_prob", "kld", "jsd", "target_entropy", "target_prob")
"""Nats, probability, nats, distance 0..sqrt(ln 2), nats, probability. See sim.control.executor.Signals."""

FILE = "acceptance.parquet"


@dataclass(frozen=True)
class Windows:
    """A bank of recorded or synthetic trajectories.

    accept      float32[R, K]: chance that the token proposed at depth d of row r is accepted, given that those before
                it were; 0 or 1 for greedy decoding
    on, off     signal name -> float32[R, K]: along the trajectory; and of proposal number j after a rejection at row r.
                `off` may be empty: then the on-trajectory values stand in, and `notes` says so
    start       int64[S]: first row of each trajectory, ascending from 0; a trajectory ends where the next one starts
    task        name of each trajectory's task, length S
    kind        "measured" or "synthetic", for every output
    name        where it comes from
    pair        "TARGET with DRAFT" that they were recorded with, names as in a profile; None: not known
    temperature of the recording, 0 if it was greedy; None: not known
    """

    name: str
    kind: str
    accept: Table
    on: Mapping[str, Table]
    off: Mapping[str, Table] = field(default_factory=dict)
    start: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    task: tuple[str, ...] = ("",)
    notes: tuple[str, ...] = ()
    pair: str | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        if not self.accept.size:
            raise InputError(f"acceptance {self.name}: no windows")
        for name, table in [("accept", self.accept), *self.on.items(), *self.off.items()]:
            if table.shape != self.accept.shape:
                raise InputError(f"acceptance {self.name}: {name} is {table.shape}, accept is {self.accept.shape}")
            if not np.isfinite(table).all() or table.min() < 0:
                raise InputError(f"acceptance {self.name}: {name} must be finite and not negative")
        if self.accept.max() > 1:
            raise InputError(f"acceptance {self.name}: accept is a probability, found {self.accept.max()}")

    @property
    def depth(self) -> int:
        """K, the longest draft that can be replayed."""
        return int(self.accept.shape[1])

    @property
    def rows_of(self) -> NDArray[np.int64]:
        """Rows of each trajectory, int64[S]."""
        return np.diff(np.append(self.start, len(self.accept)))

    @property
    def mean_acceptance(self) -> float:
        """Mean chance that the first proposed token is accepted."""
        return float(self.accept[:, 0].mean(dtype=np.float64))

    @property
    def proposed(self) -> NDArray[np.int64]:
        """Tokens that the draft proposes in each window, int64[R]: the first of probability 0 ends it (a look-up)."""
        if "draft_prob" not in self.on:
            return np.full(len(self.accept), self.depth)
        ends = np.ones((len(self.accept), self.depth + 1), np.bool_)
        np.less_equal(self.on["draft_prob"], 0, out=ends[:, :-1])
        return np.asarray(ends.argmax(axis=1))

    @property
    def looked_up(self) -> bool:
        """Whether they were recorded with a look-up: it proposes with probability 1, or nothing."""
        certain = self.on.get("draft_prob", self.accept)[:, 0]
        return bool(((certain == 0) | (certain == 1)).all() and (certain == 0).any() and "draft_prob" in self.on)

    @property
    def digest(self) -> str:
        """sha256 of everything that is replayed."""
        sha = hashlib.sha256()
        for table in (
            self.accept,
            *(self.on[key] for key in sorted(self.on)),
            *(self.off[k] for k in sorted(self.off)),
        ):
            sha.update(np.ascontiguousarray(table).tobytes())
        sha.update(self.start.tobytes() + "\0".join(self.task).encode())
        return sha.hexdigest()

    def tilted(self, acceptance_rate: float) -> Windows:
        """The same windows with `mean_acceptance` moved to the given value; signals stay as they are [O].

        Upwards each rejection is forgiven with one probability, downwards each acceptance is lost with one, so that
        easy tokens stay easier than hard ones and greedy 0/1 windows can be tilted too.
        """
        if not 0 <= acceptance_rate <= 1:
            raise InputError(f"acceptance rate is {acceptance_rate}, expected 0 to 1")
        mean = self.mean_acceptance
        if acceptance_rate >= mean:
            forgiven = (acceptance_rate - mean) / (1 - mean) if mean < 1 else 0.0
            accept = 1 - (1 - self.accept) * (1 - forgiven)
        else:
            accept = self.accept * (acceptance_rate / mean)
        note = f"acceptance tilted from {mean:.4f} to {acceptance_rate:g} (signals unchanged)"
        return replace(self, accept=accept.astype(np.float32), notes=(*self.notes, note))

    def to_frame(self) -> pd.DataFrame:
        """One row per position: trajectory, task, and `accept_0` .. , `kld_0` .., `off_kld_0` .. as float32."""
        import pandas as pd

        trajectory = np.repeat(np.arange(len(self.start)), self.rows_of)
        columns: dict[str, object] = {"trajectory": trajectory, "task": np.array(self.task, object)[trajectory]}
        tables = {"accept": self.accept, **self.on, **{f"off_{name}": table for name, table in self.off.items()}}
        for name, table in tables.items():
            columns |= {f"{name}_{depth}": table[:, depth] for depth in range(self.depth)}
        return pd.DataFrame(columns)

    def save(self, directory: Path) -> None:
        """Write `acceptance.parquet` into an existing directory, whole or not at all."""
        write_parquet(directory / FILE, self.to_frame())


def load(directory: Path) -> Windows:
    """Windows recorded in a directory (`acceptance.parquet`, the columns of `Windows.to_frame`).

    Raises InputError if the file is missing, cannot be read or lacks a column.
    """
    path = directory / FILE
    frame = read_parquet(path)
    depth = sum(str(column).startswith("accept_") for column in frame.columns)
    if not depth or "trajectory" not in frame:
        raise InputError(
            f"{path}: expected columns trajectory, accept_0, accept_1, ...; found {list(frame.columns)[:6]}"
        )

    def table(name: str) -> Table:
        columns = [f"{name}_{index}" for index in range(depth)]
        missing = [column for column in columns if column not in frame]
        if missing:
            raise InputError(f"{path}: column {missing[0]} is missing")
        return np.ascontiguousarray(frame[columns].to_numpy(np.float32))

    present = [name for name in SIGNALS if f"{name}_0" in frame]
    off = [name for name in SIGNALS if f"off_{name}_0" in frame]
    trajectory = frame["trajectory"].to_numpy(np.int64)
    if (np.diff(trajectory) < 0).any():
        raise InputError(f"{path}: column trajectory must not decrease")
    start = np.concatenate([[0], np.flatnonzero(np.diff(trajectory)) + 1]).astype(np.int64)
    tasks = frame["task"].astype(str).to_numpy()[start] if "task" in frame else [""] * len(start)
    return Windows(
        name=str(directory),
        kind="measured",
        accept=table("accept"),
        on={name: table(name) for name in present},
        off={name: table(f"off_{name}") for name in off},
        start=start,
        task=tuple(tasks),
        notes=() if off else ("proposals after a rejection carry on-trajectory signals (none were recorded there)",),
    )
