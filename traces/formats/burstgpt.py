"""BurstGPT: CSV with seconds, request and response tokens, and the kind of log; with and without session columns."""

from __future__ import annotations

import numpy as np

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.registry import FORMATS
from traces.formats.table import Table, write_table
from traces.formats.units import seconds_per_unit
from traces.options import TraceOptions
from traces.workload import Workload

TIME, PROMPT, OUTPUT, LOG_TYPE = "Timestamp", "Request tokens", "Response tokens", "Log Type"


@FORMATS.register("burstgpt")
class BurstGpt(TraceFormat):
    """A row with 0 response tokens is a request that failed: dropped and counted, or kept under --keep-failed as a
    request of one output token, the least there is, and of one prompt token where its prompt was not recorded either.
    A row with 0 request tokens and an answer is a fault of the log: dropped and counted on its own."""

    summary = "BurstGPT CSV: Timestamp, Request tokens, Response tokens (0 = failed), any other columns"
    content = "CSV"
    zero_output = "failed (0 response tokens)"
    options = frozenset({"keep_failed", "time_unit"})
    keeps = frozenset({"arrival_s", "task"})

    def recognises(self, head: Head) -> bool:
        return head.names >= {PROMPT, OUTPUT}

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        table = Table(file)
        time, prompt, output = (table.require(name) for name in (TIME, PROMPT, OUTPUT))
        log_type = table.find(LOG_TYPE)
        rows = Rows(
            table.tokens(prompt),
            table.tokens(output),
            table.times_s(time, seconds_per_unit(options, default="s")),
            task=None if log_type is None else table.texts(log_type),
        )
        failed = rows.output_tokens == 0
        if options.keep_failed and failed.any():
            rows.prompt_tokens = np.where(failed, np.maximum(rows.prompt_tokens, 1), rows.prompt_tokens)
            rows.output_tokens = np.maximum(rows.output_tokens, 1)
            rows.notes.append(f"{failed.sum()} failed requests (0 response tokens) kept as requests of 1 output token.")
        return rows

    def write(self, workload: Workload) -> str:
        prompt, output = workload.prompt_tokens.tolist(), workload.output_tokens.tolist()
        total = (workload.prompt_tokens + workload.output_tokens).tolist()
        model = [""] * len(workload)
        task = [workload.task[task_id] for task_id in workload.task_id.tolist()]
        header = (TIME, "Model", PROMPT, OUTPUT, "Total tokens", LOG_TYPE)
        return write_table(header, (workload.arrival_s.tolist(), model, prompt, output, total, task))
