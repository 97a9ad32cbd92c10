"""Parquet in and out, through fastparquet itself: pandas' own switch for it is deprecated, the format is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def read_parquet(path: Path) -> pd.DataFrame:
    """A parquet file as a frame. Raises InputError if it is missing or cannot be read."""
    import fastparquet

    try:
        with path.open("rb") as file:
            frame: pd.DataFrame = fastparquet.ParquetFile(file).to_pandas()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:  # the reader raises whatever its parts raise
        raise InputError(f"{path}: not a readable parquet file ({error})") from None
    return frame


def write_parquet(path: Path, frame: pd.DataFrame, json_columns: Sequence[str] = ()) -> None:
    """Write a frame, whole or not at all. Cells of `json_columns` are lists or dicts and are stored as JSON."""
    import fastparquet

    scratch = path.with_name(f".{path.name}.tmp")
    encoding = {name: "json" if name in json_columns else "infer" for name in frame.columns}
    try:
        fastparquet.write(str(scratch), frame, compression="ZSTD", write_index=False, object_encoding=encoding)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
