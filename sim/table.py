"""The table that a serving engineer reads at a glance: one run in panes, or several runs side by side.

Everything but the time bar on a terminal is ASCII, and lines hold at 80 columns; undefined shows as "-".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.control.log import REJECTED

if TYPE_CHECKING:
    from sim.results import Results

Format = Callable[[float], str]

TIME_PARTS = {"draft": "cyan", "verify": "green", "prefill": "yellow", "host": "magenta"}
WIDE_FROM_COLUMNS = 112
MOST_POSITIONS = 8


def number(value: float) -> str:
    """About three significant digits, thousands set apart."""
    if 0 < abs(value) < 0.1:
        return f"{value:.2g}"
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


@dataclass(frozen=True)
class Row:
    """A line of the table: the label, the metric behind it, and how it is written."""

    label: str
    key: str
    form: Format = number

    def text(self, metrics: Mapping[str, Any]) -> str:
        value = metrics.get(self.key)
        return "-" if value is None else self.form(value)


SECTIONS: dict[str, tuple[Row, ...]] = {
    "Throughput": (
        Row("requests, req/s", "request_throughput"),
        Row("offered, req/s", "offered_rate"),
        Row("goodput, req/s", "request_goodput"),
        Row("requests within SLO", "slo_attainment", percent),
        Row("output, tok/s", "output_throughput"),
        Row("prompt + output, tok/s", "total_token_throughput"),
        Row("duration, s", "duration"),
    ),
    "Speculation": (
        Row("acceptance rate", "spec_decode_acceptance_rate", lambda value: f"{value:.1f}%"),
        Row("acceptance length", "spec_decode_acceptance_length"),
        Row("tokens per step", "mean_emitted_per_step"),
        Row("mean k", "mean_draft_length"),
        Row("drafted tokens", "spec_decode_proposed_tokens", count),
        Row("verified tokens", "spec_decode_draft_tokens", count),
        Row("verified in vain", "wasted_verify_share", percent),
        Row("draft slots idle", "draft_idle_share", percent),
        Row("changes of k", "draft_length_changes", count),
    ),
    "Server": (
        Row("mean batch", "mean_batch"),
        Row("largest batch", "max_batch", count),
        Row("engine steps", "num_steps", count),
        Row("KV use, mean", "kv_usage_mean", percent),
        Row("KV use, peak", "kv_usage_peak", percent),
        Row("preemptions", "preemptions", count),
        Row("longest queue", "peak_queue", count),
        Row("prefix-cached tokens", "prefix_cached_tokens", count),
    ),
    "Time": (
        *(Row(part, f"{part}_time_share", percent) for part in TIME_PARTS),
        Row("wall clock idle", "idle_share", percent),
    ),
}

LOSSY_ROWS = (
    Row("accepted by rule only", "lossy_accepted_share", percent),
    Row("of the output", "lossy_output_share", percent),
)
"""Below "Speculation", in lossy runs only."""

TIME_ROWS = (
    Row("changes of width", "switch_time_share", percent),
    Row("draft beside verify", "hidden_draft_time_share", percent),
    Row("drafted in vain", "wasted_draft_time_share", percent),
)
"""Below "Time", each where it is not 0; parts of it or, beside verification, no part of it."""

NARROW = (("Throughput", "Server"), ("Speculation", "Time"))
WIDE = (("Throughput", "Time"), ("Speculation",), ("Server",))
"""Which sections stand below each other in the columns of `overview`."""

LATENCIES = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "E2EL": "e2el"}


def print_table(*runs: Results, console: Console | None = None) -> None:
    """Print one run, or several side by side with their ratio to the last one, the baseline."""
    console = console or Console()
    console.print(overview(runs[0]) if len(runs) == 1 else comparison(runs))


def overview(run: Results) -> RenderableType:
    """One run, in panes."""
    metrics = run.metrics
    body: list[RenderableType] = [_latency(metrics), _Panes(metrics), _positions(metrics), _TimeBar(metrics)]
    spaced: list[RenderableType] = [part for each in body for part in (Text(), each)]
    return Group(_header((run,)), *spaced, *_closing((run,)))


def comparison(runs: Sequence[Results]) -> RenderableType:
    """Several runs as columns; beside each but the last its ratio to the last, the baseline."""
    *others, baseline = runs
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for run in others:  # no cell holds a space: only the names of the policies wrap, where the line is short
        table.add_column(_policy(run), justify="right", min_width=7, overflow="fold")
        table.add_column("ratio", justify="right", min_width=5, style="dim")
    table.add_column(_policy(baseline), justify="right", min_width=7, overflow="fold")
    sections = {title: _rows(title, *(run.metrics for run in runs)) for title in SECTIONS}
    for title, rows in {"Latency, ms": tuple(_latency_rows(baseline.metrics)), **sections}.items():
        table.add_row(Text(title, "bold"))
        for row in rows:
            cells = []
            for run in others:
                cells += [row.text(run.metrics), _ratio(run.metrics.get(row.key), baseline.metrics.get(row.key))]
            table.add_row(f"  {row.label}", *cells, row.text(baseline.metrics))
    return Group(_header(runs), "", table, *_closing(runs))


def idle_note(metrics: Mapping[str, Any]) -> str | None:
    """A warning where the servers had next to nothing to do, so that policies tie (F34): mean batch below 2 and more
    than half of the wall clock without a step."""
    batch, idle = metrics["mean_batch"], metrics["idle_share"]
    if batch is None or idle is None or batch >= 2 or idle <= 0.5:
        return None
    return (
        f"idle system: the mean batch is {number(batch)} and no step runs for {percent(idle)} of the time; "
        "throughput is that of the arrivals whatever the policy"
    )


def _rows(title: str, *runs: Mapping[str, Any]) -> tuple[Row, ...]:
    """Rows of a section, with those that only some runs have."""
    lossy = title == "Speculation" and not all(metrics.get("lossless", True) for metrics in runs)
    times = tuple(row for row in TIME_ROWS if title == "Time" and any(metrics.get(row.key) for metrics in runs))
    return SECTIONS[title] + (LOSSY_ROWS if lossy else ()) + times


def _execution(config: Mapping[str, Any]) -> str:
    """How the engine runs its passes."""
    if "draft_execution" not in config:
        return ""
    parts = [
        f"{config['draft_kind']} draft, {config['draft_execution']}",
        f"verification {config['verify_execution']}",
    ]
    if sizes := config["cudagraph_capture_sizes"]:
        parts.append(f"{len(sizes)} graph sizes to {sizes[-1]}")
    if cost_ms := config["switch_cost_ms"]:
        parts.append(f"{cost_ms:g} ms per change of width")
    if config["overlap"]:
        parts.append("drafting overlaps verification")
    return "; ".join(parts)


def _rule(run: Results) -> str:
    return "lossless" if run.metrics.get("lossless", True) else f"{run.config['acceptance_rule']} (LOSSY)"


def _policy(run: Results) -> str:
    cap = run.config.get("cap")
    return str(run.config.get("policy", "?")) + (f" + {cap}" if cap and cap != "none" else "")


def _header(runs: Sequence[Results]) -> Table:
    first, config = runs[0].provenance, runs[0].config
    load = [f"{len(runs[0].workload):,} requests"]
    if config.get("request_rate") is not None:
        load.append(f"request rate {config['request_rate']}")
    if config.get("max_concurrency") is not None:
        load.append(f"at most {config['max_concurrency']:,} in flight")
    profile = f"{first.profile} ({first.profile_digest[:8]})"
    lines = {
        "trace": f"{first.trace}, {first.trace_origin}",
        "load": ", ".join([*load, f"seed {first.seed}"]),
        "models": f"{first.target} with {first.draft}",
        "profile": profile,
        "policy": " | ".join(_policy(run) for run in runs),
        "rule": " | ".join(map(_rule, runs)) if any("LOSSY" in _rule(run) for run in runs) else "",
        "execution": _execution(config),
        "acceptance": first.acceptance,
        "SLO": ", ".join(f"{name.upper()} <= {limit_ms:g} ms" for name, limit_ms in runs[0].slo.items()),
    }
    grid = Table.grid(padding=(0, 2))
    for label, text in lines.items():
        if text:
            grid.add_row(Text(label, "dim"), Text(text))
    return grid


def _latency_rows(metrics: Mapping[str, Any]) -> Iterator[Row]:
    for name, key in LATENCIES.items():
        for what in _statistics(metrics):
            yield Row(f"{name} {what}", f"{what}_{key}_ms")


def _statistics(metrics: Mapping[str, Any]) -> list[str]:
    """mean and the percentiles that were asked for."""
    return ["mean", *(key.split("_")[0] for key in metrics if key[:1] == "p" and key.endswith("_ttft_ms"))]


def _latency(metrics: Mapping[str, Any]) -> Table:
    statistics = _statistics(metrics)
    table = Table(
        box=box.ASCII, show_edge=False, show_header=True, header_style="bold", pad_edge=False, border_style="dim"
    )
    table.add_column("Latency, ms")
    for what in statistics:
        table.add_column(what, justify="right", min_width=8)
    for name, key in LATENCIES.items():
        table.add_row(name, *(Row(name, f"{what}_{key}_ms").text(metrics) for what in statistics))
    return table


@dataclass(frozen=True)
class _Panes:
    """The sections in three columns where the line is wide enough, else in two."""

    metrics: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = WIDE if options.max_width >= WIDE_FROM_COLUMNS else NARROW
        grid = Table.grid(padding=(0, 3, 0, 0))
        grid.add_row(*(self._column(titles) for titles in columns))
        yield grid

    def _column(self, titles: Sequence[str]) -> Table:
        column = Table.grid(padding=(0, 2, 0, 0))
        column.add_column(no_wrap=True)
        column.add_column(justify="right", no_wrap=True)
        for title in titles:
            if title != titles[0]:
                column.add_row()
            column.add_row(Text(title, "bold"))
            for row in _rows(title, self.metrics):
                column.add_row(Text(row.label, TIME_PARTS.get(row.label, "")), row.text(self.metrics))
        return column


def _positions(metrics: Mapping[str, Any]) -> RenderableType:
    """Acceptance per draft position: over all drafts, and over those that got there."""
    grid = Table.grid(padding=(0, 2))
    rates = metrics["spec_decode_per_position_acceptance_rates"]
    if not rates:
        return Text("no drafts, no acceptance", "dim")
    for label, key in (("accepted at position", ""), ("if reached", "conditional_")):
        values = metrics[f"spec_decode_per_position_{key}acceptance_rates"]
        shown = ["-" if value is None else f"{value:.2f}" for value in values[:MOST_POSITIONS]]
        grid.add_row(Text(label, "dim"), *shown, "..." if len(values) > MOST_POSITIONS else "")
    return grid


@dataclass(frozen=True)
class _TimeBar:
    """Draft, verify, prefill and host as one bar; blocks on a terminal, the first letters of the parts elsewhere."""

    metrics: Mapping[str, Any]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        shares = {part: self.metrics[f"{part}_time_share"] for part in TIME_PARTS}
        if any(share is None for share in shares.values()):
            return
        width = min(options.max_width, 100) - len("busy time  []")
        blocks = console.is_terminal and not options.ascii_only
        bar, filled, until = Text("busy time  ["), 0, 0.0
        for part, share in shares.items():
            until += share
            end = round(width * until)
            bar.append(("\N{FULL BLOCK}" if blocks else part[0]) * (end - filled), TIME_PARTS[part])
            filled = end
        yield bar.append("]")


def _closing(runs: Sequence[Results]) -> list[RenderableType]:
    lines: list[RenderableType] = [Text("")]
    for run in runs:
        name = f"{_policy(run)}: " if len(runs) > 1 else ""
        lines.append(Text(name + conservation_line(run.metrics["conservation"])))
        if reasons := [why for i, why in run.log.requests.reason.items() if run.log.requests.status[i] == REJECTED]:
            lines.append(Text(f"{name}rejected {len(reasons):,}, the first: {reasons[0]}", "yellow"))
        if note := idle_note(run.metrics):
            lines.append(Text(f"{name}note: {note}", "yellow"))
    provenance = runs[0].provenance
    lines += [
        Text(f"note: {note}", "yellow") for note in dict.fromkeys(note for run in runs for note in run.provenance.notes)
    ]
    grid = Table.grid(padding=(0, 2))
    for kind in ("measured", "modelled", "sampled", "synthetic"):
        if what := getattr(provenance, kind):
            grid.add_row(Text(kind, "dim"), Text("; ".join(what), "dim"))
    return [*lines, grid]


def conservation_line(books: Mapping[str, int]) -> str:
    """The books of the requests (F9); where they do not balance the line says so."""
    ends = {name: books[name] for name in ("completed", "running", "queued", "rejected")}
    sign = "=" if books["injected"] == sum(ends.values()) else "IS NOT"
    line = f"injected {books['injected']:,} {sign} " + " + ".join(f"{name} {n:,}" for name, n in ends.items())
    return line + (f"; {books['not_arrived']:,} not arrived" if books["not_arrived"] else "")


def _ratio(value: float | None, baseline: float | None) -> str:
    return "-" if value is None or not baseline else f"{value / baseline:.2f}x"
