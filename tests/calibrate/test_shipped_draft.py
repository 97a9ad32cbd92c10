"""The EAGLE-style draft of smollm2 that ships with the package."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import calibrate

FOLDER = Path(calibrate.__path__[0]) / "data" / "eagle-smollm2"


def test_its_files_are_those_that_were_logged() -> None:
    for line in (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


def test_it_was_trained_for_the_target_that_is_loaded() -> None:
    """Its states are worth nothing to another conversion of the same weights."""
    from calibrate.smollm2 import HUB_ID

    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    assert config["target"] == HUB_ID
    assert config["draft_vocab_size"] == 8000


def test_held_out_figures_are_of_all_embedded_prompts() -> None:
    found = json.loads((FOLDER / "evaluation.json").read_text(encoding="utf-8"))
    assert found["prompts"] == 96
    assert set(found["greedy"]) == set(found["sampled"])
    assert len(found["greedy"]) == 9  # 8 tasks and all of them
