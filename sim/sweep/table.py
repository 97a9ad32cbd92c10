"""The table of a sweep: rows to a frame with the same columns and types whatever ran, in parquet.

Columns: run, error, the settings, request_rate_rps, the metrics of results.json, provenance. Numbers that may be
undefined are float64 with NaN, counts among them; lists and dicts are JSON columns. No column holds a time of day or a
duration of the computation: the same runs give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from sim.config import SimConfig
from traces.errors import InputError
from traces.parquet import read_parquet, write_parquet

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TABLE = "runs.parquet"
EXACT = {int: "int64", float: "float64", bool: "bool"}
"""Settings that always have a value."""
TEXT = frozenset({"run", "error", "profile_digest", "target", "draft", "trace_origin", "draftlab_version"})


def read(directory: str | os.PathLike[str]) -> DataFrame:
    """The table of a sweep, a row per run. Raises InputError where there is none.

    `pandas.read_parquet("DIR/runs.parquet", engine="fastparquet")` gives the same.
    """
    path = Path(directory) / TABLE
    if not path.exists():
        raise InputError(f"{path}: no such file; python -m sim.sweep --output-dir {directory} writes it")
    return read_parquet(path)


def write(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the table."""
    frame = to_frame(rows)
    lists = [name for name in frame if any(isinstance(row.get(str(name)), list | dict) for row in rows)]
    try:
        write_parquet(directory / TABLE, frame, json_columns=[str(name) for name in lists])
    except OSError as error:
        raise InputError(f"cannot write {directory / TABLE}: {error.strerror or error}") from None


def to_frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Rows of JSON types as a frame; columns in the order in which they first appear."""
    from pandas import DataFrame

    names = dict.fromkeys(name for row in rows if row["error"] is None for name in row)
    names |= dict.fromkeys(name for row in rows for name in row)
    return DataFrame({name: _column(name, [row.get(name) for row in rows]) for name in names})


def _column(name: str, values: list[Any]) -> Series[Any]:
    from pandas import Series

    if name in _SETTINGS:
        kind = _SETTINGS[name]
    elif any(isinstance(value, str | list | dict) for value in values) or name in TEXT:
        kind = "object"
    else:
        kind = "boolean" if any(isinstance(value, bool) for value in values) else "float64"
    return Series(values, dtype=kind)


def _kind(hint: Any) -> str:
    if hint in EXACT:
        return EXACT[hint]
    return "float64" if hint in (int | None, float | None) else "object"


_SETTINGS = {each.name: _kind(get_type_hints(SimConfig)[each.name]) for each in fields(SimConfig)}
