"""Recorded acceptance that ships with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

from sim.config import SimConfig
from sim.replay import bundled
from sim.replay.windows import SIGNALS, Windows
from sim.simulate import simulate
from traces.errors import InputError


def test_all_banks_are_small_together():
    """The package promises less than 8 MB."""
    folder = resources.files("sim.replay") / bundled.FOLDER
    assert 0 < sum(len(entry.read_bytes()) for entry in folder.iterdir()) < 8e6


@pytest.mark.parametrize("name", ["smollm2-skip", "smollm2-eagle", "tiny-s", "tiny-m"])
def test_a_bank_is_whole(name: str):
    """96 prompts in 8 tasks at most, 20 tokens deep so that DSDE's longest draft can be replayed, every signal."""
    bank = bundled.load(name)
    assert bank.kind == "measured"
    assert bank.depth == 20
    assert 80 <= len(bank.start) <= 96
    assert set(bank.on) == set(bank.off) == set(SIGNALS)
    assert set(np.unique(bank.accept)) == {0.0, 1.0}  # greedy


def test_the_default_is_the_first_that_is_listed():
    assert bundled.names()[0] == SimConfig().acceptance == bundled.DEFAULT


def test_every_output_says_where_acceptance_was_measured():
    run = simulate(SimConfig(trace="gsm8k", num_prompts=3, request_rate="1", policy="fixed:k=2"))
    notes = " ".join(run.provenance.notes)
    assert "of smollm2 with skip" in notes.replace(": smollm2", " of smollm2")
    assert bundled.STAND_IN in run.provenance.notes


def test_what_is_written_is_read(tmp_path):
    """float16 keeps 0.5 and 0.25 exactly, and 70,000 nats become its largest number, 65,504."""
    on = {"kld": np.array([[0.5, 70_000.0]], np.float32)}
    windows = Windows("mine", "measured", np.array([[1, 0.25]], np.float32), on, on, task=("chat",), notes=("a note",))
    bundled.write(tmp_path / "bank.npz", windows, "bank", "made by hand")
    found = bundled.read(tmp_path / "bank.npz")
    assert found.accept.tolist() == [[1, 0.25]]
    assert found.on["kld"].tolist() == found.off["kld"].tolist() == [[0.5, 65504.0]]
    assert (found.name, found.task) == ("bank", ("chat",))
    assert found.notes == ("made by hand", bundled.STAND_IN, "a note")


def test_a_name_that_does_not_ship():
    with pytest.raises(InputError, match="acceptance 'large' does not ship with the package; these do: smollm2-skip"):
        bundled.load("large")
