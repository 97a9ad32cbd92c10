"""What recorded windows say: acceptance by depth, acceptance length at each k, and what goes with acceptance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sim.policies.dsde import paper, wvir
from sim.policies.history import DecayedVariance
from sim.replay.windows import Windows

Floats = NDArray[np.float64]

HISTORY_SIGNALS = ("mean KLD before", "WVIR before")
BINS = 12


def survival(windows: Windows) -> Floats:
    """float64[R, K + 1]: chance that the first d proposals of a row are all accepted, d = 0..K."""
    accept = windows.accept.astype(np.float64)
    return np.hstack([np.ones((len(accept), 1)), np.cumprod(accept, axis=1)])


def by_depth(windows: Windows) -> tuple[list[float], list[float | None]]:
    """For depth 1..K the chance to be accepted, over all windows; and over those that got there, None if none did.

    vLLM's per-position acceptance rates and the conditional ones, here with each position of the text as a start.
    """
    reached = survival(windows).mean(axis=0)
    accepted = reached[1:].tolist()
    return accepted, [float(a / b) if b > 0 else None for a, b in zip(reached[1:], reached[:-1], strict=True)]


def mean_acceptance(windows: Windows) -> tuple[float, float | None]:
    """Mean chance that a first proposal is accepted, and its standard error with trajectories as the sample."""
    first = windows.accept[:, 0].astype(np.float64)
    mean, rows = float(first.mean()), windows.rows_of
    if len(rows) < 2:
        return mean, None
    off = np.add.reduceat(first, windows.start) - mean * rows
    return mean, float(np.sqrt((off**2).sum() * len(rows) / (len(rows) - 1)) / rows.sum())


def acceptance_lengths(windows: Windows) -> list[float]:
    """Mean of 1 + accepted tokens over the steps of an engine that drafts k tokens in each, k = 1..K.

    The engine walks each trajectory from its start, and a step starts where the last one ended. So it meets hard tokens
    more often than a mean over all windows does. Exact: step probabilities are added up, nothing is drawn.
    """
    reach = survival(windows)
    rows, depth = windows.rows_of, windows.depth
    trajectory = np.repeat(np.arange(len(rows)), rows)
    position = np.arange(len(reach)) - windows.start[trajectory]
    whole = np.zeros((rows.max(), len(rows), depth + 1))  # rows beyond a trajectory's end: no chance to go on
    whole[position, trajectory] = reach
    lengths = []
    for k in range(1, depth + 1):
        ends_after = whole[:, :, : k + 1].copy()  # chance of exactly a = 0..k accepted
        ends_after[:, :, :k] -= whole[:, :, 1 : k + 1]
        visited = np.zeros((len(whole) + k + 1, len(rows)))
        visited[0] = 1
        for t, chances in enumerate(ends_after):
            visited[t + 1 : t + 2 + k] += (visited[t][:, None] * chances).T
        steps = visited[: len(whole)] * whole[:, :, 0]
        lengths.append(float((steps * whole[:, :, : k + 1].sum(axis=2)).sum() / steps.sum()))
    return lengths


def of_task(windows: Windows, task: str) -> Windows:
    """The trajectories of one task."""
    chosen = [i for i, name in enumerate(windows.task) if name == task]
    rows = windows.rows_of
    index = np.concatenate([np.arange(windows.start[i], windows.start[i] + rows[i]) for i in chosen])
    return Windows(
        name=windows.name,
        kind=windows.kind,
        accept=windows.accept[index],
        on={name: table[index] for name, table in windows.on.items()},
        start=np.concatenate([[0], np.cumsum(rows[chosen])[:-1]]).astype(np.int64),
        task=(task,) * len(chosen),
    )


def correlations(windows: Windows) -> dict[str, float | None]:
    """Pearson's correlation of each signal with the chance that the token is accepted, over all positions of the text.

    The recorded signals are those of the first proposal itself. `HISTORY_SIGNALS` are what a policy knows before it:
    the mean of the KLD of the 10 positions before, and WVIR of the 30 before (arXiv 2509.01083, constants of the
    paper preset); they leave out the first 30 positions. None where one side is constant.
    """
    first = windows.accept[:, 0].astype(np.float64)
    found = {name: pearson(table[:, 0].astype(np.float64), first) for name, table in windows.on.items()}
    if "kld" in windows.on:
        rows, mean, ratio = history(windows)
        found |= dict(zip(HISTORY_SIGNALS, (pearson(mean, first[rows]), pearson(ratio, first[rows])), strict=True))
    return found


def pearson(x: Floats, y: Floats) -> float | None:
    """Of two samples of one length; None if one is constant or shorter than 2."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def binned(windows: Windows, signal: str) -> tuple[Floats, Floats]:
    """Mean signal and mean acceptance of first proposals, in up to `BINS` equally large classes by the signal."""
    x, y = windows.on[signal][:, 0].astype(np.float64), windows.accept[:, 0].astype(np.float64)
    edges = np.unique(np.quantile(x, np.linspace(0, 1, BINS + 1)[1:-1]))  # a value as frequent as a class has its own
    member = np.searchsorted(edges, x, side="left")
    count = np.bincount(member)
    sums = (np.bincount(member, values)[count > 0] for values in (x, y))
    mean_x, mean_y = (total / count[count > 0] for total in sums)
    return mean_x, mean_y


def history(windows: Windows) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Rows with a full history before them, with its mean KLD and WVIR."""
    constants = paper()
    length, short = constants.warm_up, int(constants.short_window[-1])
    variance = DecayedVariance(length, constants.decay, constants.short_window, constants.long_window)
    parts: list[Sequence[NDArray[np.float64]]] = []
    for start, rows in zip(windows.start, windows.rows_of, strict=True):
        if rows <= length:
            continue
        kld = windows.on["kld"][start : start + rows, 0].astype(np.float64)
        before = sliding_window_view(kld, length)[:-1]  # of row start + length and after
        count = np.full(len(before), length)
        short_variance, long_variance = variance(before, count)
        ratio = wvir(short_variance, long_variance, count)
        parts.append((start + np.arange(length, rows), before[:, -short:].mean(axis=1), ratio))
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    found, mean, ratios = (np.concatenate(column) for column in zip(*parts, strict=True))
    return found.astype(np.int64), mean, ratios
