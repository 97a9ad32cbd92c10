"""Trajectories on disk and as windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrate.bank import Trajectory, assemble
from sim.replay.windows import SIGNALS
from traces.errors import InputError


def trajectory(index: int, rows: int, task: str = "chat") -> Trajectory:
    tables = {name: np.full((rows, 2), index, np.float32) for name in SIGNALS}
    return Trajectory(index, task, np.arange(rows + 1), np.full((rows, 2), 0.5, np.float32), tables, tables)


def test_saved_and_loaded(tmp_path: Path) -> None:
    path, written = tmp_path / "7.npz", trajectory(7, 3)
    written.save(path)
    found = Trajectory.load(path)
    assert (found.index, found.task, found.tokens.tolist()) == (7, "chat", [0, 1, 2, 3])
    assert all((found.off[name] == written.off[name]).all() for name in SIGNALS)
    assert [file.name for file in tmp_path.iterdir()] == ["7.npz"]


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "0.npz"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(InputError, match="not a readable trajectory"):
        Trajectory.load(path)


def test_a_signal_that_one_text_lacks_is_not_in_the_bank(tmp_path: Path) -> None:
    old = trajectory(0, 3)
    old.off.pop("target_prob")
    old.on.pop("target_prob", None)
    old.save(tmp_path / "0.npz")
    found = assemble([Trajectory.load(tmp_path / "0.npz"), trajectory(1, 2)], "pair")
    assert set(found.on) == set(found.off) == set(SIGNALS) - {"target_prob"}


def test_assembled_in_order_of_the_prompts() -> None:
    found = assemble([trajectory(2, 1, "code"), trajectory(0, 3)], "pair", ["note"])
    assert (found.start.tolist(), found.task, found.notes) == ([0, 3], ("chat", "code"), ("note",))
    assert found.on["kld"][:, 0].tolist() == [0, 0, 0, 2]


def test_texts_of_one_token_are_left_out() -> None:
    found = assemble([trajectory(0, 0), trajectory(1, 2)], "pair")
    assert len(found.task) == 1
    assert "1 texts ended at their first token" in found.notes[0]


def test_no_window_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="no text of two tokens"):
        assemble([trajectory(0, 0)], "pair")
