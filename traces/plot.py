"""One figure of a workload: both length distributions, how they go together, and the rate over time."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.files import write_bytes
from traces.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
PROMPT_COLOUR, OUTPUT_COLOUR, RATE_COLOUR, MEDIAN_COLOUR = "#3b6fb6", "#d9803f", "#4b8b5e", "#333333"
LENGTH_BINS, RATE_BINS = 60, 120


def check_plot_path(path: Path) -> None:
    """Raises `InputError` for a file type that cannot be drawn; to be called before any long work."""
    if path.suffix.removeprefix(".").lower() not in FORMATS:
        raise InputError(
            f"--plot {path}: expected a file name that ends in {', '.join('.' + name for name in FORMATS)}"
        )


def plot(workload: Workload, path: Path) -> None:
    """Draw the workload into `path`; its suffix says how. Needs no display. Raises `InputError`."""
    check_plot_path(path)
    import matplotlib

    kind = path.suffix.removeprefix(".").lower()
    content = io.BytesIO()
    # no date and a fixed salt for element ids: the same workload, the same bytes
    with matplotlib.rc_context({"svg.hashsalt": "draftlab"}):
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        draw(workload).savefig(content, format=kind, dpi=150, metadata=metadata)
    write_bytes(path, content.getvalue())


def draw(workload: Workload) -> Figure:
    # the figure alone, without pyplot: no window, no toolkit, no global state
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    figure.suptitle(f"{workload.name}: {len(workload):,} requests, {workload.origin}", fontsize=11)
    _draw_lengths(axes[0, 0], workload.prompt_tokens, "prompt", PROMPT_COLOUR)
    _draw_lengths(axes[0, 1], workload.output_tokens, "output", OUTPUT_COLOUR)
    _draw_joint(axes[1, 0], workload)
    _draw_rate(axes[1, 1], workload)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, alpha=0.2)
        ax.set_axisbelow(True)
    return figure


def _draw_lengths(ax: Axes, tokens: NDArray[np.int64], name: str, colour: str) -> None:
    ax.hist(tokens, bins=_log_edges(tokens).tolist(), color=colour, alpha=0.85)
    median = float(np.median(tokens))
    ax.axvline(median, color=MEDIAN_COLOUR, linewidth=1, linestyle="--", label=f"median {median:,.0f}")
    ax.set_xscale("log")
    ax.set(xlabel=f"{name} length (tokens)", ylabel="requests per bin", title=f"{name.capitalize()} lengths")
    ax.legend(frameon=False)


def _draw_joint(ax: Axes, workload: Workload) -> None:
    x, y = _log_edges(workload.prompt_tokens), _log_edges(workload.output_tokens)
    counts, _, _ = np.histogram2d(workload.prompt_tokens, workload.output_tokens, bins=(x, y))
    mesh = ax.pcolormesh(x, y, np.ma.masked_equal(counts.T, 0), cmap="Blues", vmin=0)
    ax.figure.colorbar(mesh, ax=ax, label="requests per cell")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="prompt length (tokens)", ylabel="output length (tokens)", title="Output against prompt")


def _draw_rate(ax: Axes, workload: Workload) -> None:
    ax.set(xlabel="time since the first arrival (s)", ylabel="arrivals (requests/s)", title="Offered load")
    span = float(workload.arrival_s[-1])
    if span <= 0:
        ax.text(0.5, 0.5, "all requests arrive at once", ha="center", va="center", transform=ax.transAxes)
        return
    counts, edges = np.histogram(workload.arrival_s, bins=min(RATE_BINS, max(2, len(workload) // 4)), range=(0.0, span))
    width = edges[1] - edges[0]
    ax.stairs(counts / width, edges, color=RATE_COLOUR, fill=True, alpha=0.85, label=f"per {width:.3g} s")
    mean = workload.offered_rate_rps
    ax.axhline(mean, color=MEDIAN_COLOUR, linewidth=1, linestyle="--", label=f"mean {mean:.3g} requests/s")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)


def _log_edges(tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Bin edges, evenly spaced in the logarithm, with room where all lengths are equal."""
    return np.geomspace(0.9 * float(tokens.min()), 1.1 * float(tokens.max()), LENGTH_BINS + 1)
