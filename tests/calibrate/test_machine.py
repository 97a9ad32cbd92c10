"""What is recorded about the machine."""

from __future__ import annotations

import json
import platform

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
pytest.importorskip("psutil")

from calibrate import machine  # noqa: E402

CPU = torch.device("cpu")


def test_facts_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(machine.facts(CPU)))
    assert {"cpu", "cpu_cores", "threads", "memory_bytes"} <= set(found)


def test_threads_are_pinned_and_stated() -> None:
    before = torch.get_num_threads()
    assert machine.pin_threads(1) == 1
    assert machine.facts(CPU)["threads"] == 1
    torch.set_num_threads(before)


def test_load_has_three_averages() -> None:
    assert len(machine.load(CPU)["load_average"]) == 3


def test_versions_name_what_took_part() -> None:
    found = machine.versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__


def test_a_command_that_is_missing_says_nothing() -> None:
    assert machine._output("no-such-command-of-draftlab") is None
