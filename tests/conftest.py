"""Fixtures for what is not part of the repository: real trace files and vectors of other implementations."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BESIDE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared" / "data"


def _directory(variable: str, default: Path) -> Path:
    directory = Path(os.environ.get(variable) or default)
    if not directory.is_dir():
        pytest.skip(f"no directory {os.path.relpath(directory)}; {variable} names another")
    return directory


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The directory that holds `traces/` and `trace_quantiles.json` (DRAFTLAB_DATA)."""
    return _directory("DRAFTLAB_DATA", BESIDE_REPOSITORY)


@pytest.fixture(scope="session")
def golden() -> Path:
    """The directory of vectors that original implementations produced (DRAFTLAB_GOLDEN)."""
    return _directory("DRAFTLAB_GOLDEN", BESIDE_REPOSITORY / "golden")
