"""A policy of the user's own: whatever is wrong with it is one line that says where."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sim.config import SimConfig
from sim.simulate import simulate
from sim.sweep.run import _own_module as own_module
from traces.errors import InputError

HEAD = """import numpy as np
from sim.policies import LengthPolicy

class Mine(LengthPolicy):
    max_length = 3
    def __init__(self, context):
        self.ones = np.ones(3)
    def lengths(self, batch):
        return np.full(len(batch), 3)
"""
HOOKS = {
    "begin": "def begin(self, slots):",
    "lengths": "def lengths(self, batch):",
    "stop": "def stop(self, batch, depth, signals):",
    "trim": "def trim(self, batch, proposed, signals):",
    "observe": "def observe(self, batch, outcome):",
    "__init__": "def __init__(self, context):",
}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Serve three requests with the class Mine of a module `mypol` that holds this text."""
    monkeypatch.syspath_prepend(tmp_path)

    def serve(text: str, spec: str = "mypol:Mine"):
        (tmp_path / "mypol.py").write_text(text)
        monkeypatch.delitem(sys.modules, "mypol", raising=False)
        return simulate(SimConfig(trace="random", input_len=20, output_len=9, num_prompts=3, policy=spec))

    return serve


def test_the_module_serves_as_it_stands(run):
    assert run(HEAD).metrics["completed"] == 3


@pytest.mark.parametrize("hook", HOOKS)
def test_what_a_hook_raises_is_named_with_its_place(run, hook):
    # HEAD has nine lines; the hook is the tenth, its body the eleventh
    with pytest.raises(InputError, match=rf"policy mypol:Mine fails in {hook}: ZeroDivisionError: .* \(mypol.py:11\)$"):
        run(f"{HEAD}    {HOOKS[hook]}\n        1 / 0\n")


def test_the_original_error_is_among_the_causes(run):
    # SimPy raises what ends a process once more, from the first
    with pytest.raises(InputError) as caught:
        run(f"{HEAD}    {HOOKS['observe']}\n        1 / 0\n")
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)


def test_a_hook_does_not_end_the_process(run):
    with pytest.raises(InputError, match="fails in observe: SystemExit: 0"):
        run(f"{HEAD}    {HOOKS['observe']}\n        raise SystemExit(0)\n")


@pytest.mark.parametrize(
    ("hook", "value", "expected"),
    [
        ("lengths", "3", "lengths must be . integers >= 0, got 3"),
        ("lengths", "[3] * len(batch)", "lengths must be"),
        ("lengths", "None", "lengths must be . integers >= 0, got None"),
        ("lengths", "np.full(len(batch), 2.5)", "lengths must be"),
        ("lengths", "np.full(len(batch) + 1, 2)", "lengths must be"),
        ("lengths", "np.full(len(batch), -1)", "lengths must be"),
        ("stop", "None", "stop must be . booleans, got None"),
        ("stop", "np.zeros(len(batch))", "stop must be"),
        ("stop", "True", "stop must be"),
        ("trim", "None", "trim must be . integers from 0 to what was proposed, got None"),
        ("trim", "proposed - 9", "trim must be"),
        ("trim", "proposed + 1", "trim must be"),
        ("trim", "proposed * 0.5", "trim must be"),
        ("trim", "proposed[:0]", "trim must be"),
    ],
)
def test_what_a_hook_returns_is_looked_at(run, hook, value, expected):
    with pytest.raises(InputError, match=f"policy mypol:Mine: {expected}"):
        run(f"{HEAD}    {HOOKS[hook]}\n        return {value}\n")


def test_unsigned_lengths_are_whole_numbers_too(run):
    made = run(f"{HEAD}    {HOOKS['lengths']}\n        return np.full(len(batch), 2, np.uint64)\n")
    assert np.issubdtype(made.log.emissions["proposed"].dtype, np.integer)


@pytest.mark.parametrize(
    ("text", "spec", "expected"),
    [
        (HEAD.replace("    max_length = 3\n", ""), "mypol:Mine", "max_length is None"),
        (HEAD.replace("(self, context)", "(self)"), "mypol:Mine", "fails in __init__: TypeError: .*2 were given"),
        (HEAD.replace("def lengths", "def length"), "mypol:Mine", r"has no method lengths\(self, batch\)"),
        (HEAD.replace("context)", "context, k=3)"), "mypol:Mine:k=2", "option k has no annotation"),
        (HEAD, "mypol:Mine:", "expected options after the colon"),
        (HEAD, "mypol:nix", "mypol has no class nix"),
        (HEAD, "mypol:np", "mypol:np is not a subclass"),
        (HEAD, "nix.mypol:Mine", "there is no module nix.mypol"),
        ("import nix\n", "mypol:Mine", "mypol cannot be imported: No module named 'nix'"),
        ("raise SystemExit(0)\n", "mypol:Mine", "mypol cannot be imported: SystemExit: 0"),
    ],
)
def test_what_is_no_policy(run, text, spec, expected):
    with pytest.raises(InputError, match=expected):
        run(text, spec)


@pytest.mark.parametrize(("spec", "name"), [("mypol:mine:k=1", "mypol.py"), ("fixed:k", None), ("nix.mypol:A", None)])
def test_a_sweep_knows_the_file_whose_change_makes_a_run_stale(monkeypatch, tmp_path, spec, name):
    (tmp_path / "mypol.py").write_text(HEAD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mypol", raising=False)
    found = own_module(spec)
    assert (found and found.name) == name


def test_a_class_of_small_letters(run):
    assert run(HEAD.replace("Mine", "mine"), "mypol:mine").metrics["completed"] == 3
