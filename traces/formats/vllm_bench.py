"""Result of `vllm bench serve --save-detailed`: the lengths and start times of the requests that it sent."""

from __future__ import annotations

import numpy as np

from traces.errors import InputError
from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.jsonl import Record, parse
from traces.formats.registry import FORMATS
from traces.options import TraceOptions

PROMPTS, OUTPUTS, TIMES = "input_lens", "output_lens", "start_times"


@FORMATS.register("vllm-bench")
class VllmBench(TraceFormat):
    summary = "vllm bench serve --save-detailed result JSON: input_lens, output_lens, start_times"
    content = "a JSON object"
    zero_output = "failed (0 output tokens)"

    def recognises(self, head: Head) -> bool:
        return bool(head.names & {PROMPTS, "request_throughput"})

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        result = parse(file, file.text)
        if not isinstance(result, dict):
            raise file.error(1, f"expected one JSON object, found {type(result).__name__}")
        if PROMPTS not in result:
            raise InputError(f"{file.path}: no {PROMPTS}: run vllm bench serve with --save-detailed to record them")
        whole = Record(str(file.path), result)
        columns = [PROMPTS, OUTPUTS] + ([TIMES] if TIMES in result else [])
        lengths = {name: len(whole.list(name)) for name in columns}
        if len(set(lengths.values())) > 1:
            raise InputError(f"{file.path}: the lists differ in length: {lengths}")
        rows = [
            Record(f"{file.path}: request {index}", dict(zip(columns, values, strict=True)))
            for index, values in enumerate(zip(*(whole.list(name) for name in columns), strict=True))
        ]
        return Rows(
            np.array([row.tokens(PROMPTS) for row in rows], np.int64),
            np.array([row.tokens(OUTPUTS) for row in rows], np.int64),
            np.array([row.number(TIMES) for row in rows], np.float64) if TIMES in result else None,
        )
