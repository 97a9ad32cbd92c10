"""python -m traces list | describe TRACE | convert TRACE --to FORMAT --output FILE"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from traces.command import parse
from traces.describe import as_text, describe
from traces.errors import InputError, run_command
from traces.files import write_text
from traces.formats import FORMATS
from traces.loader import load
from traces.named import NAMES, named_trace
from traces.options import TraceOptions
from traces.plot import check_plot_path, plot
from traces.synthetic import DEFAULT_INPUT_LEN, DEFAULT_OUTPUT_LEN, RANDOM
from traces.workload import Workload

PROG = "traces"
USAGE = """\
usage: python -m traces COMMAND ...

  list                                        named traces, with source and licence, and file formats
  describe TRACE [--plot FILE] [--json]       counts, length quantiles, rate, burstiness, notes
  convert TRACE --to FORMAT --output FILE     write a workload as azure, burstgpt, mooncake, vllm-timed or lengths

TRACE is a named trace, `random` or a file. Options of a command: python -m traces COMMAND --help
"""


@dataclass(frozen=True, kw_only=True)
class List:
    """Named traces and file formats."""

    json: bool = False
    """Print JSON and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Describe(TraceOptions):
    """What a workload looks like: counts, length quantiles, rate, burstiness, what is assumed."""

    plot: Path | None = None
    """Also draw it into this file (.svg, .png or .pdf)."""

    json: bool = False
    """Print JSON and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Convert(TraceOptions):
    """Write a workload in another format; what the format cannot hold is named."""

    to: Literal["azure", "burstgpt", "mooncake", "vllm-timed", "lengths"]
    """Format to write."""

    output: Path
    """File to write; gzipped if it ends in .gz."""


def list_traces(options: List) -> None:
    traces = {name: named_trace(name) for name in NAMES}
    if options.json:
        entries = [
            {"name": name, "summary": each.summary, "source": each.source, "licence": each.licence, "rows": each.rows}
            for name, each in traces.items()
        ]
        summaries = {name: FORMATS[name].summary for name in FORMATS}
        print(json.dumps({"traces": entries, "formats": summaries}, indent=2, ensure_ascii=False))
        return
    print("Named traces (lengths sampled from figures of the source; no file needed)")
    for name, each in traces.items():
        print(f"  {name:<15}{each.summary}. {each.source}; {each.licence}")
    defaults = f"--input-len {DEFAULT_INPUT_LEN}, --output-len {DEFAULT_OUTPUT_LEN}, --range-ratio 0"
    print(f"  {RANDOM:<15}uniform lengths, as vLLM's random dataset ({defaults}). Synthetic")
    print("\nFile formats (recognised from content, or --trace-format)")
    for name in FORMATS:
        print(f"  {name:<15}{FORMATS[name].summary}")


def describe_trace(options: Describe) -> None:
    if options.plot:
        check_plot_path(options.plot)
    workload = load(options)
    description = describe(workload)
    if options.plot:
        plot(workload, options.plot)
    if options.json:
        print(json.dumps(description.as_dict(), indent=2, ensure_ascii=False))
    else:
        print(as_text(description))


def convert_trace(options: Convert) -> None:
    workload = load(options)
    trace_format = FORMATS[options.to]()
    write_text(options.output, trace_format.write(workload))
    lost = [what for what in _held(workload) if what not in trace_format.keeps]
    without = f", without {' and '.join(what.replace('_', ' ') for what in lost)}" if lost else ""
    print(f"{options.output}: {len(workload)} requests as {options.to}{without}")


def _held(workload: Workload) -> list[str]:
    held = {"task": workload.task != ("",), "prefix_blocks": workload.prefix_blocks is not None}
    return [what for what, present in held.items() if present]


def main(arguments: Sequence[str] | None = None) -> None:
    args = list(sys.argv[1:] if arguments is None else arguments)
    if not args or args[0] in ("-h", "--help"):
        print(USAGE, end="")
        return None
    command, rest = args[0], args[1:]
    if command == "list":
        return list_traces(parse(List, f"{PROG} list", "Named traces and file formats.", rest))
    if command == "describe":
        return describe_trace(parse(Describe, f"{PROG} describe", str(Describe.__doc__), _with_trace(command, rest)))
    if command == "convert":
        return convert_trace(parse(Convert, f"{PROG} convert", str(Convert.__doc__), _with_trace(command, rest)))
    raise InputError(f"unknown command {command!r}; expected list, describe or convert (see python -m traces --help)")


def _with_trace(command: str, args: list[str]) -> list[str]:
    """Let the trace come first, without its flag."""
    if args and not args[0].startswith("-"):
        return ["--trace", *args]
    if not {"-h", "--help"} & set(args) and not any(arg.split("=")[0] == "--trace" for arg in args):
        raise InputError(f"which trace? python -m traces {command} TRACE; python -m traces list shows the named ones")
    return args


if __name__ == "__main__":
    entry: Callable[[], None] = main
    sys.exit(run_command(entry))
