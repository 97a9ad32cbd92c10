"""K by batch size: vLLM's dynamic speculative decoding, `num_speculative_tokens_per_batch_size` [C].

    K(b) = min(K_max, K of the last range whose start is <= b)          b: requests scheduled in the step

so that gaps and the tail inherit. The ranges [first, last, K] may come in any order; the first starts at 1, none
overlaps another. What vLLM 0.32 refuses, in its configuration or when it builds the table, is refused here.

Hooks: lengths; lossless. b counts every sequence that holds a slot, prefilling ones included; requests that the same
step admits are not known yet when its drafts are planned [O].
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sim.control.batch import DecodeBatch, Ints
from sim.policies.base import LARGEST_OPTION, LengthPolicy, PolicyContext, policies
from sim.policies.json_option import load_json
from traces.errors import InputError

WHAT = "policy batch-table"
KEY = "num_speculative_tokens_per_batch_size"
PUBLISHED = "[[1,64,3],[65,101,2],[102,165,1],[166,256,0]]"
"""The schedule that vLLM's authors profiled for an 8B model with EAGLE."""

Row = tuple[int, int, int]


@policies.register("batch-table")
class BatchTable(LengthPolicy):
    """K by batch size, from a table in vLLM's num_speculative_tokens_per_batch_size layout.

    table  ranges [[first, last, K], ...] or a whole --speculative-config as JSON, or a file that holds either
    k      longest draft; default: num_speculative_tokens of the configuration, else the largest K
    """

    name = "batch-table"
    source = "vLLM 0.32 [C]; default table: vLLM's published profile"

    def __init__(self, context: PolicyContext, table: str = PUBLISHED, k: int | None = None) -> None:
        value = load_json(table, f"{WHAT}: option table")
        config = value if isinstance(value, dict) else {KEY: value}
        if config.get(KEY) is None:
            raise InputError(f"{WHAT}: the configuration has no {KEY}; for one K throughout use fixed:k=K")
        rows = parse_table(config[KEY])
        if k is None and config is value:
            k = _whole(config.get("num_speculative_tokens"), "num_speculative_tokens")
        if k is not None and k < 1:
            raise InputError(f"{WHAT}: the longest draft is {k}, expected at least 1")
        self.table = lookup(rows, max(row[2] for row in rows) if k is None else k, context.num_slots)
        self.max_length = int(self.table.max())

    def lengths(self, batch: DecodeBatch) -> Ints:
        return np.full(len(batch), self.table[batch.num_running - 1], np.int64)


def parse_table(value: Any) -> list[Row]:
    """Check a table and sort it by the starts of its ranges. Raises InputError."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{WHAT}: the table is {value!r}, expected ranges [[first, last, K], ...]")
    rows = sorted(_row(row) for row in value)
    if rows[0][0] != 1:
        raise InputError(f"{WHAT}: the first range starts at {rows[0][0]}, expected 1")
    for (first, last, _), (following, _, _) in pairwise(rows):
        if following <= last:
            raise InputError(f"{WHAT}: the range that starts at {following} overlaps {first} to {last}")
    return rows


def lookup(rows: Sequence[Row], k_max: int, max_batch: int) -> Ints:
    """K of every batch size 1..max_batch, int64[max_batch]; `rows` sorted."""
    starts, lengths = np.array([row[0] for row in rows]), np.array([row[2] for row in rows], np.int64)
    return np.minimum(lengths[np.searchsorted(starts, np.arange(1, max_batch + 1), side="right") - 1], k_max)


def _row(row: Any) -> Row:
    if not isinstance(row, list) or len(row) != 3:
        raise InputError(f"{WHAT}: {row!r} is no range [first, last, K]")
    first, last, k = (_whole(value, f"range {row}") for value in row)
    if last < first or k < 0:
        raise InputError(f"{WHAT}: range {row}: expected first <= last and K >= 0")
    return first, last, k


def _whole(value: Any, where: str) -> int:
    """An integer, also as 3.0, "3" or true: what vLLM's configuration takes for one."""
    try:
        if (isinstance(value, str) or value == int(value)) and abs(int(value)) <= LARGEST_OPTION:
            return int(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{WHAT}: {where}: {value!r} is no whole number of at most {LARGEST_OPTION}")
