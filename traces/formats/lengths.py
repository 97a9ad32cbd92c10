"""Plain CSV of lengths, with or without times: the header spellings that published length files use."""

from __future__ import annotations

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.registry import FORMATS
from traces.formats.table import Table, simplified, write_table
from traces.formats.units import seconds_per_unit
from traces.options import TraceOptions
from traces.workload import Workload

# spaces, underscores and case do not matter: ContextTokens, context_tokens and "Context tokens" are one spelling
PROMPT = (
    "prompt_tokens", "num_prefill_tokens", "input_length", "input_len", "input_tokens", "prompt_len", "prompt_length",
    "num_prompt_tokens", "num_input_tokens", "context_tokens", "request_tokens", "prefill_tokens", "input_toks",
)  # fmt: skip
OUTPUT = (
    "output_tokens", "num_decode_tokens", "output_length", "output_len", "completion_tokens", "generated_tokens",
    "num_output_tokens", "response_tokens", "decode_tokens", "output_toks",
)  # fmt: skip
TIME = ("arrival_s", "arrived_at", "arrival_time", "arrival_time_s", "arrival", "timestamp", "start_time", "time_s")
DRAWN_TIME_SUFFIX = "arrival_s"  # poisson16_arrival_s and its like: times drawn for one experiment


@FORMATS.register("lengths")
class Lengths(TraceFormat):
    summary = "plain CSV: prompt and output tokens under any usual header, arrival times and task optional"
    content = "CSV"
    options = frozenset({"time_unit"})
    keeps = frozenset({"arrival_s", "task"})

    def recognises(self, head: Head) -> bool:
        names = {simplified(name) for name in head.names}
        return all(names & set(map(simplified, spellings)) for spellings in (PROMPT, OUTPUT))

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        table = Table(file)
        prompt, output = table.require(*PROMPT), table.require(*OUTPUT)
        drawn = [name for name in table.header if simplified(name).endswith(simplified(DRAWN_TIME_SUFFIX))]
        time, task = table.find(*TIME, *drawn), table.find("task")
        return Rows(
            table.tokens(prompt),
            table.tokens(output),
            None if time is None else table.times_s(time, seconds_per_unit(options, default="s")),
            task=None if task is None else table.texts(task),
        )

    def write(self, workload: Workload) -> str:
        columns: dict[str, list[object]] = {}
        if workload.arrival_s.any() or workload.has_times:
            columns["arrival_s"] = workload.arrival_s.tolist()
        columns["prompt_tokens"] = workload.prompt_tokens.tolist()
        columns["output_tokens"] = workload.output_tokens.tolist()
        if workload.task != ("",):
            columns["task"] = [workload.task[task_id] for task_id in workload.task_id.tolist()]
        return write_table(list(columns), list(columns.values()))
