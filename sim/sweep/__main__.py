"""python -m sim.sweep --policy none dsde --request-rate 4 8 16 --seed 0 1 2: every combination, one row each."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sim.sweep.axes import expand, flags, values_of
from sim.sweep.progress import bar
from sim.sweep.runner import sweep
from sim.sweep.table import TABLE
from sim.table import number
from traces.command import parse
from traces.errors import run_command

if TYPE_CHECKING:
    from pandas import DataFrame

DESCRIPTION = (
    "Simulate every combination of settings; every option of python -m sim takes several values. Run it again to go on "
    "after an interrupt or to add values: what is finished does not run again."
)
SHOWN = {"mean_ttft_ms": "TTFT ms", "mean_tpot_ms": "TPOT ms", "output_throughput": "output tok/s"}
COMPARED = "mean_tpot_ms"
MOST_ROWS = 60
WIDTH_IN_A_PIPE = 120


def main() -> int:
    options: Any = parse(flags(), "sim.sweep", DESCRIPTION)
    configs = expand(values_of(options), options.baseline)
    with bar() as progress:
        frame = sweep(
            configs,
            options.output_dir,
            backend=options.backend,
            address=options.address,
            jobs=options.jobs,
            retry_failed=options.retry_failed,
            progress=progress,
        )
    failed = frame[frame["error"].notna()]
    print(f"{len(frame):,} runs, {len(failed):,} failed: {options.output_dir / TABLE}")
    for error in failed["error"].unique()[:3]:
        print(f"failed: {error}", file=sys.stderr)
    if len(failed) < len(frame):
        _print(frame, options.baseline)
    return 1 if len(failed) else 0


def _print(frame: DataFrame, baseline: str | None) -> None:
    """Means with their intervals over seeds, a row per setting, and the difference to the baseline."""
    from rich.box import ASCII
    from rich.console import Console
    from rich.table import Table

    from sim.sweep.compare import POLICY, paired, summary

    means = summary(frame, list(SHOWN))
    names = [name for name in means.columns[: list(means.columns).index("n")] if means[name].map(str).nunique() > 1]
    names = names or ["policy"]
    versus = (
        {}
        if baseline is None
        else {
            tuple(map(str, row[POLICY + [name for name in names if name not in POLICY]])): row
            for _, row in paired(frame, baseline, [COMPARED]).iterrows()
        }
    )
    table = Table(box=ASCII, show_edge=False, pad_edge=False, border_style="dim", header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for label in SHOWN.values():
        table.add_column(label, justify="right")
    if baseline is not None:
        table.add_column(f"TPOT against {baseline}", justify="right")
    for _, row in means.head(MOST_ROWS).iterrows():
        cells = [_interval(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in SHOWN]
        if baseline is not None:
            key = tuple(map(str, row[POLICY + [name for name in names if name not in POLICY]]))
            cells.append(_change(versus[key]) if key in versus else "-")
        table.add_row(*(str(row[name]) for name in names), *cells)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_IN_A_PIPE)
    console.print(table)
    if len(means) > MOST_ROWS:
        console.print(f"... {len(means) - MOST_ROWS:,} more rows")
    seeds = int(means["n"].max())
    console.print(
        f"95 % intervals over {seeds} seeds; differences are paired by seed"
        if seeds > 1
        else "one seed, no interval: give --seed several values"
    )


def _interval(middle: float, low: float, high: float) -> str:
    if middle != middle:
        return "-"
    return number(middle) if low != low else f"{number(middle)} +-{number((high - low) / 2)}"


def _change(row: Any) -> str:
    """A ratio with its interval, as percent."""
    if row["ratio"] != row["ratio"]:
        return "-"
    change = f"{100 * (row['ratio'] - 1):+.1f} %"
    low, high = (100 * (row[f"ratio_{end}"] - 1) for end in ("low", "high"))
    return change if low != low else f"{change} [{low:+.1f}, {high:+.1f}]"


if __name__ == "__main__":
    sys.exit(run_command(main))
