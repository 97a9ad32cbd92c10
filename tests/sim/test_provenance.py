"""What the outputs say about acceptance that was recorded otherwise than it is replayed."""

from __future__ import annotations

import numpy as np
import pytest

from sim.config import SimConfig
from sim.replay import bundled, catalogue
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from sim.results import Provenance
from sim.simulate import Inputs, load_inputs, simulate

SETTINGS = {"trace": "random", "input_len": 20, "output_len": 5, "num_prompts": 3, "policy": "fixed:k=2"}


def windows(pair: str | None = None, temperature: float | None = None) -> Windows:
    return Windows("mine", "measured", np.ones((4, 3), np.float32), {}, pair=pair, temperature=temperature)


def provenance(found: Windows, temperature: float = 0.0) -> Provenance:
    config = SimConfig(**SETTINGS, temperature=temperature)  # type: ignore[arg-type]
    inputs = load_inputs(config)
    return simulate(config, Inputs(inputs.workload, inputs.profile, found)).provenance


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("tiny with draft-s", "acceptance: mine, recorded with another pair (tiny with draft-s)"),
        ("llama-3.1-70b with llama-3.2-1b", "acceptance: mine"),  # that of the default profile
        (None, "acceptance: mine"),
    ],
)
def test_acceptance_of_another_pair(pair: str | None, said: str) -> None:
    assert said in provenance(windows(pair)).measured


@pytest.mark.parametrize(
    ("recorded", "asked", "said"),
    [
        (0.0, 1.0, "requests have temperature 1; acceptance mine was recorded with greedy decoding"),
        (1.0, 0.0, "requests have temperature 0; acceptance mine was recorded at temperature 1"),
        (0.0, 0.0, None),
        (None, 1.0, None),
    ],
)
def test_acceptance_of_another_temperature(recorded: float | None, asked: float, said: str | None) -> None:
    notes = [note for note in provenance(windows(None, recorded), asked).notes if "temperature" in note]
    assert [note.partition(" and is replayed")[0] for note in notes] == ([said] if said else [])


@pytest.mark.parametrize("expected", [("tiny with draft-s", 0.0), ("tiny with draft-s", 0.7), (None, None)])
def test_a_bank_knows_its_pair_and_temperature(tmp_path, expected) -> None:
    bundled.write(tmp_path / "bank.npz", windows(*expected), "bank", "made by hand")
    found = bundled.read(tmp_path / "bank.npz")
    assert (found.pair, found.temperature) == expected


def test_every_bank_that_ships_knows_its_pair() -> None:
    assert all(bundled.load(name).pair for name in bundled.names())


def test_a_directory_knows_the_pair_of_its_profile(tmp_path) -> None:
    Profile.load(catalogue.DEFAULT).save(tmp_path)
    windows().save(tmp_path)
    assert acceptance_source(str(tmp_path)).pair == "llama-3.1-70b with llama-3.2-1b"


def test_a_directory_knows_the_temperature_of_its_live_run(tmp_path) -> None:
    windows().save(tmp_path)
    assert acceptance_source(str(tmp_path)).temperature is None
    (tmp_path / "reconciliation.json").write_text('{"temperature": 0.7}', encoding="utf-8")
    assert acceptance_source(str(tmp_path)).temperature == 0.7
