"""Notebooks: each runs clean from a fresh kernel on a small budget, and says what its text says."""

from __future__ import annotations

import importlib.util

import pytest

from analysis.notebooks.execute import execute, texts

pytestmark = pytest.mark.notebook

PROMPTS = "20"
NAMES = [text.stem for text in texts()]


@pytest.fixture(autouse=True, scope="module")
def _needs():
    for name in ("nbclient", "jupytext", "ipykernel"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed (extra notebook)")


def of_name(name):
    (text,) = [text for text in texts() if text.stem == name]
    return text


def test_notebooks_are_found():
    assert {"01_quick_start", "02_policy_sweep", "03_straggler_caps", "05_write_your_own_policy"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_and_text_are_one(name):
    import jupytext

    text = of_name(name)
    written, stored = (jupytext.read(path) for path in (text, text.with_suffix(".ipynb")))
    assert [(cell.cell_type, cell.source) for cell in stored.cells] == [(c.cell_type, c.source) for c in written.cells]


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_are_clean(name):
    import jupytext

    notebook = jupytext.read(of_name(name).with_suffix(".ipynb"))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []


@pytest.mark.filterwarnings("default")  # of the Jupyter stack, not ours
@pytest.mark.parametrize("name", NAMES)
def test_runs_from_a_fresh_kernel(name, monkeypatch):
    monkeypatch.setenv("DRAFTLAB_PROMPTS", PROMPTS)
    notebook = execute(of_name(name))  # raises where a cell does
    said = [
        output.text for cell in notebook.cells for output in cell.get("outputs", ()) if output.get("name") == "stderr"
    ]
    assert said == []
