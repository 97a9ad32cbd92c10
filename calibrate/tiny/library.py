"""Prose and code of the training text: what every Python installation carries.

Prose is the reference of `help()` and the docstrings of the standard library, code its functions without docstrings and
comments. The text is that of one exact Python version; `calibrate.tiny.corpus` guards it with a hash.
"""

from __future__ import annotations

import ast
import pydoc_data.topics
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from calibrate.tiny.generated import Document

# not the same on every machine (configuration), or not installed everywhere (tests), or not part of Python
LEFT_OUT = ("site-packages", "dist-packages", "test", "tests", "__pycache__", "_sysconfigdata")
SHORTEST_PROSE, SHORTEST_CODE, LONGEST_CODE = 60, 80, 4000  # characters
PROMPT_CHARACTERS = 120

Definition = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def prose() -> list[Document]:
    """Topics of `help()`, then docstrings, in the order of file names; equal ones once."""
    texts = [text.strip() for _, text in sorted(pydoc_data.topics.topics.items())]
    definitions = (node for tree in _modules() for node in ast.walk(tree) if isinstance(node, Definition))
    texts += [docstring for node in definitions if (docstring := ast.get_docstring(node))]
    return [_document("prose", text) for text in dict.fromkeys(texts) if len(text) >= SHORTEST_PROSE]


def code() -> list[Document]:
    """Functions and methods, normalised by `ast.unparse`, without docstrings; equal ones once."""
    nodes = (node for tree in _modules() for node in ast.walk(tree))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    texts = [ast.unparse(_without_docstrings(function)) for function in functions]
    kept = (text for text in dict.fromkeys(texts) if SHORTEST_CODE <= len(text) <= LONGEST_CODE)
    return [_document("code", text) for text in kept]


def _modules() -> Iterator[ast.Module]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py"), key=lambda found: found.relative_to(root).as_posix()):
        if any(part.startswith(LEFT_OUT) for part in path.relative_to(root).parts):
            continue
        with warnings.catch_warnings():  # old escapes in the library's own strings
            warnings.simplefilter("ignore")
            try:
                yield ast.parse(path.read_bytes())
            except SyntaxError:  # files of lib2to3 that are wrong on purpose
                continue


def _without_docstrings(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
    for node in ast.walk(function):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return function


def _document(task: str, text: str) -> Document:
    """Split before the first white space after PROMPT_CHARACTERS, at the latest before the last one."""
    spaces = [i for i, character in enumerate(text) if character.isspace()]
    split = next((i for i in spaces if i >= min(PROMPT_CHARACTERS, len(text) // 2)), len(text) // 2)
    return Document(task, text[:split], text[split:])
