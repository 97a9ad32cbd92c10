"""How every figure of this project looks, and how it gets into a file: no display, no pyplot, no date (F66)."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traces.errors import InputError
from traces.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, VERMILLION, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#5f5f5f"
"""Okabe and Ito's colours, which the colour-blind tell apart."""

TIME_PARTS = {"draft": ORANGE, "verify": BLUE, "prefill": GREEN, "host": PURPLE}

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "draftlab",  # element ids, and so the bytes, depend on the figure only
}

UNDATED: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_path(path: str | os.PathLike[str]) -> str:
    """The kind of picture that a path asks for. Raises InputError if it cannot be one."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    if kind not in UNDATED:
        raise InputError(f"plot {path}: unknown kind of picture {path.suffix!r}; one of .{', .'.join(UNDATED)}")
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"plot {path}: {path if path.is_dir() else path.parent} is {'a' if path.is_dir() else 'no'} directory"
        )
    return kind


def new_figure(width_in: float, height_in: float) -> Figure:
    """A figure with a canvas of its own, which does not enter pyplot's list. Call inside `rc_context(STYLE)`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(drawn)
    return drawn


def picture(draw: Callable[[], Figure], kind: str) -> bytes:
    """What `draw` draws, as a file of that kind; equal figures give equal bytes."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        draw().savefig(content, format=kind, dpi=150, metadata=UNDATED[kind])
    return content.getvalue()


def save_picture(draw: Callable[[], Figure], path: str | os.PathLike[str]) -> None:
    """Draw into a file, whole or not at all. Raises InputError for another extension and where it cannot be written."""
    write_bytes(Path(path), picture(draw, check_path(path)))


def nothing(axes: Axes, title: str, why: str) -> None:
    """Instead of a panel whose data are not there."""
    axes.set(title=title, xticks=[], yticks=[])
    axes.text(0.5, 0.5, why, ha="center", va="center", transform=axes.transAxes, color=GREY)


def drawable(text: str) -> str:
    """Without what the font lacks (it would warn) and what would be read as a formula."""
    return text.encode("latin-1", "replace").decode("latin-1").replace("$", r"\$")
