"""What drafting k tokens for everyone buys at each batch size, and where it stops to pay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.frame import good, need, only_one, varying
from analysis.intervals import ratio
from analysis.style import better_high, heat_cells, named
from sim.style import nothing
from traces.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCHES = ("max_concurrency", "max_num_seqs", "request_rate")
FIXED = re.compile(r"fixed(?::(?:k=)?(\d+))?")
DEFAULT_K = 4


def draft_length(policy: str) -> int | None:
    """k of a policy that always drafts the same: 0 for `none`, None for one that decides."""
    match = FIXED.fullmatch(policy)
    return 0 if policy == "none" else int(match[1] or DEFAULT_K) if match else None


def speed_up(frame: pd.DataFrame, axes: Axes, batch: str | None = None, metric: str = "mean_tpot_ms") -> Axes:
    """Times as fast as plain decoding, by k (`fixed:k=...`) and batch, paired by seed; the line is break-even.

    batch  the setting that makes the batch; default: the first that varies of max_concurrency, max_num_seqs and
           request_rate
    """
    title = "Speed-up against plain decoding"
    if frame.empty or good(frame).empty:
        nothing(axes, title, "no runs")
        return axes
    need(frame, "speed_up", "policy", "seed", metric)
    runs = good(frame)
    runs = runs.assign(k=pd.Series([draft_length(str(p)) for p in runs["policy"]], runs.index, "float64")).dropna(
        subset="k"
    )
    batch = batch or next((name for name in BATCHES if name in varying(runs)), BATCHES[0])
    need(frame, "speed_up", batch)
    only_one(runs, "speed_up", batch)
    if not (runs["k"] == 0).any() or not (runs["k"] > 0).any():
        raise InputError("speed_up: needs runs of none and of fixed:k=N for some N; add them to --policy")
    table = speed_ups(runs, batch, metric)
    low, high = float(np.nanmin(table.to_numpy())), float(np.nanmax(table.to_numpy()))
    image = heat_cells(axes, table.to_numpy(), lambda value: f"{value:.2f}", low=min(low, 0.9), high=max(high, 1.1))
    colourbar = axes.figure.colorbar(image, ax=axes, label="times as fast")
    if min(table.shape) > 1 and low < 1 < high:
        for colour, width in (("white", 4.0), ("black", 1.6)):
            axes.contour(np.ma.masked_invalid(table.to_numpy()), [1.0], colors=colour, linewidths=width)
    colourbar.ax.axhline(1.0, color="black", linewidth=1.6)
    axes.set_xticks(
        range(table.shape[1]), [f"{value:g}" if isinstance(value, float) else str(value) for value in table]
    )
    axes.set_yticks(range(len(table)), [f"{k:g}" for k in table.index])
    axes.invert_yaxis()
    axes.set(title=title, xlabel=named(batch), ylabel="k, draft tokens")
    return axes


def speed_ups(runs: pd.DataFrame, batch: str, metric: str) -> pd.DataFrame:
    """Rows k > 0, columns batch, both ascending; NaN where one of the two was not run. runs have a column `k`."""
    sizes = runs[batch].map(lambda value: float(value) if value is not None else np.nan)
    table = pd.DataFrame(index=sorted(set(runs["k"]) - {0}), columns=sorted(sizes.dropna().unique()), dtype=np.float64)
    for (k, size), own in runs.groupby([runs["k"], sizes]):
        if k != 0:
            found = ratio(own, runs[(runs["k"] == 0) & (sizes == size)], metric).mean
            table.loc[k, size] = found if better_high(metric) else 1 / found
    return table
