"""One file per trace format. Importing this package fills `FORMATS`."""

from traces.errors import InputError
from traces.files import TextFile
from traces.formats import (  # noqa: F401  each import registers its format
    azure,
    burstgpt,
    lengths,
    mooncake,
    sharegpt,
    vllm_bench,
    vllm_custom,
    vllm_timed,
)
from traces.formats.base import Head, Rows, TraceFormat, look_at
from traces.formats.registry import FORMATS
from traces.options import TraceOptions, flag, given


def read(file: TextFile, options: TraceOptions) -> Rows:
    """Read a trace file in the format that is asked for, or else recognised. Raises `InputError`."""
    name = options.trace_format or recognise(file)
    trace_format = FORMATS[name]()
    head = look_at(file)
    if not head.may_be(trace_format.content):
        found = _matching(head)
        guess = f" that looks like {found}" if found else ""
        raise InputError(f"{file.path}: expected {name}, which is {trace_format.content}; found {head.content}{guess}")
    for field in sorted(FORMAT_OPTIONS & given(options) - trace_format.options):
        takers = ", ".join(known for known in FORMATS if field in FORMATS[known].options)
        raise InputError(f"{flag(field)} applies to {takers} files; {file.path} is {name}")
    return trace_format.read(file, options).drop_zero_lengths(trace_format.zero_output)


def recognise(file: TextFile) -> str:
    """Name of the format that the content of the file shows. Raises `InputError` if it shows none."""
    head = look_at(file)
    name = _matching(head)
    if name is None:
        columns = f" with the columns {', '.join(sorted(head.names))}" if head.names else ""
        shown = columns if len(columns) <= 200 else columns[:200] + "..."
        known = ", ".join(FORMATS)
        raise InputError(f"{file.path}: format not recognised: {head.content}{shown}; --trace-format forces {known}")
    return name


def _matching(head: Head) -> str | None:
    # at most one format recognises a file, but for `lengths`, which also fits the headers of azure and burstgpt
    for name in FORMATS:
        trace_format = FORMATS[name]()
        if head.may_be(trace_format.content) and trace_format.recognises(head):
            return name
    return None


FORMAT_OPTIONS = frozenset(option for name in FORMATS for option in FORMATS[name].options)

__all__ = ["FORMATS", "Rows", "TraceFormat", "read", "recognise"]
