"""JSON Lines of timestamp, input_length, output_length and hash_ids: what Mooncake's and vLLM's timed traces share."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Literal

import numpy as np

from traces.files import TextFile
from traces.formats.base import Head, Rows
from traces.formats.jsonl import Record, records
from traces.formats.units import seconds_per_unit, unit_warning
from traces.options import TraceOptions
from traces.workload import PrefixBlocks, Workload

TIME, PROMPT, OUTPUT, BLOCKS = "timestamp", "input_length", "output_length", "hash_ids"


def is_timed(head: Head) -> bool:
    return head.names >= {TIME, PROMPT, OUTPUT}


def counts_seconds(head: Head) -> bool:
    """Whether a timed trace has seconds and small blocks (vLLM, Alibaba), not Mooncake's milliseconds and 512 tokens:
    times are written with a decimal point, or the blocks can only have 16 tokens."""
    if any(isinstance(record.get(TIME), float) for record in head.records):
        return True
    sizes = [
        (tokens, len(ids))
        for record in head.records
        if isinstance(tokens := record.get(PROMPT), int) and isinstance(ids := record.get(BLOCKS), list)
    ]
    return block_size(sizes, default=0) == 16


def read_timed(file: TextFile, options: TraceOptions, unit: Literal["s", "ms"], block_tokens: int | None) -> Rows:
    """Rows of a timed trace. `block_tokens` None: taken from the numbers of tokens and blocks in the file."""
    times, prompts, outputs, blocks = [], [], [], []
    for record in records(file):
        times.append(record.number(TIME))
        prompts.append(record.tokens(PROMPT))
        outputs.append(record.tokens(OUTPUT))
        blocks.append(_block_ids(record))
    prefix_blocks = None
    if any(blocks):
        counts = np.array([len(ids) for ids in blocks], np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        ids = np.fromiter(chain.from_iterable(blocks), np.int64, int(offsets[-1]))
        prefix_blocks = PrefixBlocks(
            block_tokens or block_size(zip(prompts, map(len, blocks), strict=True)), offsets, ids
        )
    return Rows(
        np.array(prompts, np.int64),
        np.array(outputs, np.int64),
        np.array(times) * seconds_per_unit(options, unit),
        prefix_blocks=prefix_blocks,
        notes=unit_warning(times, options, unit),
    )


def write_timed(workload: Workload, times: Iterable[object], with_blocks: bool = True) -> str:
    lines = []
    lengths = zip(workload.prompt_tokens.tolist(), workload.output_tokens.tolist(), strict=True)
    for request, (time, (prompt, output)) in enumerate(zip(times, lengths, strict=True)):
        record: dict[str, object] = {TIME: time, PROMPT: prompt, OUTPUT: output}
        if workload.prefix_blocks and with_blocks:
            record[BLOCKS] = workload.prefix_blocks.of(request).tolist()
        lines.append(json.dumps(record) + "\n")
    return "".join(lines)


def block_size(sizes: Iterable[tuple[int, int]], default: int = 16) -> int:
    """The power of two B for which every prompt of t tokens in b blocks satisfies (b - 1) B < t <= b B.

    16 (Alibaba's traces and vLLM's default) where none does, or none is told apart. sizes: pairs (t, b).
    """
    pairs = [(tokens, blocks) for tokens, blocks in sizes if blocks]
    at_least = max((tokens / blocks for tokens, blocks in pairs), default=0)
    below = min((tokens / (blocks - 1) for tokens, blocks in pairs if blocks > 1), default=float("inf"))
    candidates = [size for size in (2**power for power in range(15)) if at_least <= size < below]
    return candidates[0] if len(candidates) == 1 else default


def _block_ids(record: Record) -> list[int]:
    if BLOCKS not in record.fields:
        return []
    ids = record.list(BLOCKS)
    for value in ids:
        if type(value) is not int:
            raise record.wrong(BLOCKS, "a list of whole numbers")
    # hashes may be unsigned 64-bit; their low 63 bits tell blocks apart as well
    return [value & 0x7FFF_FFFF_FFFF_FFFF for value in ids]  # type: ignore[operator]
