"""Mooncake traces (arXiv 2407.00079): JSON Lines with milliseconds, lengths, and hashes of 512-token prompt blocks."""

from __future__ import annotations

import numpy as np

from traces.files import TextFile
from traces.formats.base import Head, Rows, TraceFormat
from traces.formats.blocks import counts_seconds, is_timed, read_timed, write_timed
from traces.formats.registry import FORMATS
from traces.options import TraceOptions
from traces.workload import Workload

BLOCK_TOKENS = 512


@FORMATS.register("mooncake")
class Mooncake(TraceFormat):
    """The conversation trace's clock ticks every 3 s: its times are replayed as they are, so requests come in clumps;
    --arrival-jitter-s 3 spreads them over the tick."""

    summary = "Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids of 512-token blocks"
    content = "JSON Lines"
    options = frozenset({"time_unit"})
    keeps = frozenset({"arrival_s", "prefix_blocks"})

    def recognises(self, head: Head) -> bool:
        return is_timed(head) and not counts_seconds(head)

    def read(self, file: TextFile, options: TraceOptions) -> Rows:
        return read_timed(file, options, unit="ms", block_tokens=BLOCK_TOKENS)

    def write(self, workload: Workload) -> str:
        """Times to the millisecond; blocks only if they have Mooncake's 512 tokens."""
        blocks = workload.prefix_blocks
        with_blocks = blocks is not None and blocks.block_tokens == BLOCK_TOKENS
        return write_timed(workload, np.round(workload.arrival_s * 1e3).astype(np.int64).tolist(), with_blocks)
