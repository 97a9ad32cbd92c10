"""What a workload looks like in figures: counts, quantiles, rate, burstiness, dependence of output on prompt."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from traces.workload import Workload

PERCENTILES = (5, 25, 50, 75, 90, 95, 99)
PEAK_WINDOW_S = 10.0


@dataclass(frozen=True)
class Lengths:
    """Token counts of one column."""

    mean: float
    p5: float
    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float
    max: int
    total: int


@dataclass(frozen=True)
class Description:
    """Figures of a workload. None where a figure is not defined: no span of time, one request, a constant column.

    gap_cv                         standard deviation of the gaps between arrivals over their mean; 1 is Poisson
    peak_rate_rps                  requests per second in the busiest 10 s on a grid from the first arrival on
    spearman                       rank correlation of prompt and output lengths
    median_output_by_prompt_fifth  median output of the requests in each fifth of the prompt lengths, shortest first
    repeated_block_share           share of the prompt blocks that some earlier request has had: what an unbounded
                                   prefix cache would save
    """

    name: str
    origin: str
    requests: int
    dropped: dict[str, int]
    duration_s: float
    offered_rate_rps: float | None
    peak_rate_rps: float | None
    gap_cv: float | None
    prompt_tokens: Lengths
    output_tokens: Lengths
    spearman: float | None
    median_output_by_prompt_fifth: list[float] | None
    tasks: dict[str, int]
    prefix_block_tokens: int | None
    repeated_block_share: float | None
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def describe(workload: Workload) -> Description:
    duration = float(workload.arrival_s[-1])
    gaps = np.diff(workload.arrival_s)
    blocks = workload.prefix_blocks
    counts = np.bincount(workload.task_id, minlength=len(workload.task)).tolist()
    return Description(
        name=workload.name,
        origin=workload.origin,
        requests=len(workload),
        dropped=dict(workload.dropped),
        duration_s=duration,
        offered_rate_rps=workload.offered_rate_rps if duration > 0 else None,
        peak_rate_rps=_peak_rate(workload.arrival_s) if duration >= PEAK_WINDOW_S else None,
        gap_cv=float(gaps.std() / gaps.mean()) if duration > 0 and len(gaps) > 1 else None,
        prompt_tokens=_lengths(workload.prompt_tokens),
        output_tokens=_lengths(workload.output_tokens),
        spearman=spearman(workload.prompt_tokens, workload.output_tokens),
        median_output_by_prompt_fifth=_by_fifth(workload) if len(workload) >= 5 else None,
        tasks={name: count for name, count in zip(workload.task, counts, strict=True) if name and count},
        prefix_block_tokens=blocks.block_tokens if blocks else None,
        repeated_block_share=1 - len(np.unique(blocks.ids)) / len(blocks.ids) if blocks and len(blocks.ids) else None,
        notes=workload.notes,
    )


def spearman(first: NDArray[np.int64], second: NDArray[np.int64]) -> float | None:
    """Rank correlation, equal values sharing their mean rank; None for a constant column."""
    rank_of_first, rank_of_second = _mean_ranks(first), _mean_ranks(second)
    if rank_of_first.std() == 0 or rank_of_second.std() == 0:
        return None
    return float(np.corrcoef(rank_of_first, rank_of_second)[0, 1])


def _mean_ranks(values: NDArray[np.int64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _lengths(tokens: NDArray[np.int64]) -> Lengths:
    percentiles = {
        f"p{p}": float(value) for p, value in zip(PERCENTILES, np.percentile(tokens, PERCENTILES), strict=True)
    }
    return Lengths(mean=float(tokens.mean()), **percentiles, max=int(tokens.max()), total=int(tokens.sum()))


def _peak_rate(arrival_s: NDArray[np.float64]) -> float:
    return float(np.unique(arrival_s // PEAK_WINDOW_S, return_counts=True)[1].max() / PEAK_WINDOW_S)


def _by_fifth(workload: Workload) -> list[float]:
    by_prompt = np.argsort(workload.prompt_tokens, kind="stable")
    return [float(np.median(part)) for part in np.array_split(workload.output_tokens[by_prompt], 5)]


def as_text(description: Description) -> str:
    """A page for the terminal."""
    rate, cv = description.offered_rate_rps, description.gap_cv
    peak = f" (busiest 10 s: {description.peak_rate_rps:.4g})" if description.peak_rate_rps else ""
    rows = [
        ("trace", f"{description.name}, {description.origin}"),
        ("requests", f"{description.requests}"),
        *((("dropped", f"{count}: {reason}")) for reason, count in description.dropped.items()),
        ("duration", f"{description.duration_s:.4g} s"),
        ("offered rate", f"{rate:.4g} requests/s{peak}" if rate else "all at once"),
        ("gaps", f"coefficient of variation {cv:.2f} (Poisson: 1)" if cv is not None else "-"),
    ]
    if description.spearman is not None:
        rows.append(("dependence", f"Spearman rho of prompt and output {description.spearman:.2f}"))
    if description.median_output_by_prompt_fifth:
        fifths = "  ".join(f"{value:.0f}" for value in description.median_output_by_prompt_fifth)
        rows.append(("", f"median output by fifth of prompt length: {fifths}"))
    if description.tasks:
        rows.append(("tasks", ", ".join(f"{name} {count}" for name, count in description.tasks.items())))
    if description.repeated_block_share is not None:
        share = f"{100 * description.repeated_block_share:.1f} % seen before"
        rows.append(("prefix blocks", f"{description.prefix_block_tokens} tokens each, {share}"))
    rows += [("notes" if index == 0 else "", note) for index, note in enumerate(description.notes)]
    head = [f"{label:<15}{text}" for label, text in rows]
    return "\n".join([*head, "", *_length_table(description)])


def _length_table(description: Description) -> list[str]:
    columns = ("mean", *(f"p{p}" for p in PERCENTILES), "max")
    table = [f"{'tokens':<15}" + "".join(f"{column:>9}" for column in columns)]
    for label, lengths in (("prompt", description.prompt_tokens), ("output", description.output_tokens)):
        table.append(f"{label:<15}" + "".join(f"{getattr(lengths, column):>9.0f}" for column in columns))
    return table
