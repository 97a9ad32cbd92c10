"""Azure LLM inference traces of 2023 and 2024: CSV with dates of seven decimals, context and generated tokens."""

from __future__ import annotations

import numpy as np

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.registry import FORMATS
from traces.formats.table import Table, write_table
from traces.options import TraceOptions
from traces.workload import Workload

HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
FIRST_ARRIVAL = np.datetime64("2000-01-01T00:00:00", "ns")  # a workload knows no date; a written file needs one


@FORMATS.register("azure")
class Azure(TraceFormat):
    summary = "Azure LLM inference 2023/2024 CSV: TIMESTAMP, ContextTokens, GeneratedTokens"
    content = "CSV"
    keeps = frozenset({"arrival_s"})

    def recognises(self, head: Head) -> bool:
        return head.names >= set(HEADER)

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        table = Table(file)
        time, prompt, output = (table.require(name) for name in HEADER)
        return Rows(table.tokens(prompt), table.tokens(output), table.times_s(time))

    def write(self, workload: Workload) -> str:
        """Times to 100 ns, the resolution of the original."""
        ticks = np.round(workload.arrival_s * 1e7).astype(np.int64)
        dates = np.datetime_as_string(FIRST_ARRIVAL + (ticks * 100).astype("timedelta64[ns]"), unit="ns").tolist()
        times = [date[:-2].replace("T", " ") for date in dates]
        return write_table(HEADER, (times, workload.prompt_tokens.tolist(), workload.output_tokens.tolist()))
