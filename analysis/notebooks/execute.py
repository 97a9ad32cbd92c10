"""Run notebooks from their text in a fresh kernel and write the .ipynb beside it, outputs included.

python analysis/notebooks/execute.py [NAME.py ...]     default: all
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 300


def texts() -> list[Path]:
    return sorted(HERE.glob("[0-9]*.py"))


def execute(text: Path) -> Any:
    """The notebook of a text with its outputs, without time stamps. Raises nbclient's error where a cell fails."""
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(text)
    client = NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(ROOT)}})
    client.execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
    return notebook


def main() -> None:
    import nbformat

    for text in [HERE / name for name in sys.argv[1:]] or texts():
        nbformat.write(execute(text), text.with_suffix(".ipynb"))
        print(text.with_suffix(".ipynb").name, flush=True)


if __name__ == "__main__":
    main()
