"""How series are told apart, also in grey and by the colour-blind: colour, marker and line at once; and drawing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    STYLE,
    TIME_PARTS,
    VERMILLION,
    new_figure,
    save_picture,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SKY, BLACK = "#56B4E9", "#000000"
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
LINES = ("-", "--", "-.")
HATCHES = dict(zip(TIME_PARTS, ("", "///", "...", "xx"), strict=True))
HEAT = "cividis"
"""Rises in lightness, so that it reads in grey, and looks the same to the colour-blind."""

WIDTH_IN, HEIGHT_IN = 5.6, 3.8
LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2el": "end-to-end latency",
}
OTHERS = {
    "output_throughput": "output throughput, tokens/s",
    "total_token_throughput": "throughput, tokens/s",
    "request_throughput": "throughput, requests/s",
    "request_goodput": "goodput, requests/s",
    "mean_batch": "mean batch, sequences",
    "max_concurrency": "requests in flight",
    "max_num_seqs": "most sequences at a time",
    "request_rate": "request rate, requests/s",
}


def named(column: str) -> str:
    """What a column holds, with its unit, as an axis says it."""
    what, _, rest = column.partition("_")
    latency = LATENCIES.get(rest.removesuffix("_ms"))
    return f"{what} {latency}, ms" if latency and rest.endswith("_ms") else OTHERS.get(column, column.replace("_", " "))


def better_high(metric: str) -> bool:
    """Whether more of it is better."""
    return metric.endswith(("throughput", "goodput", "attainment"))


def styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Line style of each series, by order of appearance; plain decoding is black, an oracle grey."""
    found: dict[str, dict[str, Any]] = {}
    colours, markers, lines = cycle(COLOURS), cycle(MARKERS), (line for line in cycle(LINES) for _ in COLOURS)
    for label in dict.fromkeys(labels):
        if label == "none":
            found[label] = {"color": BLACK, "marker": ".", "linestyle": ":"}
        elif label == "oracle:goodput":
            found[label] = {"color": GREY, "marker": "*", "linestyle": ":"}
        else:
            found[label] = {"color": next(colours), "marker": next(markers), "linestyle": next(lines)}
    return {label: {"markersize": 4.5, "linewidth": 1.4} | style for label, style in found.items()}


def legend_below(axes: Axes, longest_row: int = 84) -> None:
    """The legend under the axes, in as many columns as its labels allow: it hides nothing, however many there are."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axes.get_legend_handles_labels()
    if labels:
        columns = max(1, min(len(labels), 4, longest_row // (max(map(len, labels)) + 6)))
        below = axes.transAxes + ScaledTranslation(-0.1, -0.45, axes.get_figure(root=True).dpi_scale_trans)  # type: ignore[union-attr]
        axes.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            bbox_transform=below,
            ncols=columns,
            borderaxespad=0,
            columnspacing=1.2,
        )


def heat_cells(axes: Axes, values: Any, shown: Callable[[float], str], *, low: float, high: float) -> Any:
    """A heat map of rows by columns with the value in each cell; a cell without one stays white."""
    values = np.asarray(values, np.float64)
    image = axes.imshow(np.ma.masked_invalid(values), cmap=HEAT, vmin=low, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value) and values.size <= 240:
            dark = (value - low) / ((high - low) or 1.0) < 0.55
            axes.text(
                column, row, shown(value), ha="center", va="center", fontsize=7, color="white" if dark else "black"
            )
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return image


def plain_ticks(axis: Any, at: Any = None) -> None:
    """Numbers as people write them, on a logarithmic axis too; at the values that were run, where they are given."""
    if at is not None:
        axis.set_ticks(at)
    axis.set_major_formatter(lambda value, _: f"{value:,g}")
    axis.set_minor_formatter("")


def draw(
    figure: Callable[..., Axes], data: Any, *, size_in: tuple[float, float] | None = None, **options: Any
) -> Figure:
    """A figure of its own for one of the figure functions, in the house style; as high as what it holds asks for."""
    import matplotlib

    with matplotlib.rc_context(STYLE):
        drawn = new_figure(*(size_in or (WIDTH_IN, HEIGHT_IN)))
        axes = figure(data, drawn.add_subplot(), **options)
        if size_in is None:
            drawn.set_size_inches(WIDTH_IN, _height_in(axes))
    return drawn


def _height_in(axes: Axes) -> float:
    """A figure of named rows has the same room for each row; one with a long legend keeps the room of its plot."""
    from matplotlib.ticker import FixedLocator

    named_rows = isinstance(axes.yaxis.get_major_locator(), FixedLocator)
    rows = len(axes.get_yticks())
    plot_in = 0.8 + 0.27 * max(rows, 2) if named_rows and rows else 3.2
    legend = axes.get_legend()
    lines = 0 if legend is None else -(-len(legend.get_texts()) // legend._ncols)  # type: ignore[attr-defined]
    return plot_in + 0.1 + 0.17 * lines


def save(figure: Callable[..., Axes], data: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Draw into a .svg, .png or .pdf file; the same data, the same bytes. Raises InputError."""
    save_picture(lambda: draw(figure, data, **options), Path(path))
