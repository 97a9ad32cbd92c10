"""vLLM's timed trace (`--dataset-name timed_trace`): Mooncake's columns, but seconds and mostly 16-token blocks."""

from __future__ import annotations

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.blocks import counts_seconds, is_timed, read_timed, write_timed
from traces.formats.registry import FORMATS
from traces.options import TraceOptions
from traces.workload import Workload


@FORMATS.register("vllm-timed")
class VllmTimed(TraceFormat):
    """Also the format of Alibaba's Qwen-Bailian traces. Told from Mooncake by times with a
    decimal point or 16-token blocks; a file without either is taken for Mooncake's milliseconds."""

    summary = "vLLM timed_trace JSONL (also Qwen-Bailian): timestamp (s), input_length, output_length, hash_ids"
    content = "JSON Lines"
    options = frozenset({"time_unit"})
    keeps = frozenset({"arrival_s", "prefix_blocks"})

    def recognises(self, head: Head) -> bool:
        return is_timed(head) and counts_seconds(head)

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        return read_timed(file, options, unit="s", block_tokens=None)

    def write(self, workload: Workload) -> str:
        return write_timed(workload, workload.arrival_s.tolist())
