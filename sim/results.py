"""The results of a run: figures, settings, provenance and the log; saved so that other tools can read them.

results.json      one key per line: the keys of `vllm bench serve`, ours after them, then config and provenance
requests.parquet  one row per request (sim/per_request.py)
steps.parquet     one row per engine step, with --save-detailed (sim/control/log.py)
timeline.json     Chrome/Perfetto trace, with --timeline (sim/timeline.py)

The same run gives the same bytes: no file holds a time stamp or a path of the output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.control.log import EventLog
from sim.latency import timings_of
from sim.per_request import JSON_COLUMNS, request_columns
from sim.timeline import write_timeline
from traces.errors import InputError
from traces.workload import Workload

if TYPE_CHECKING:
    from pandas import DataFrame

RESULTS, REQUESTS, STEPS, TIMELINE = "results.json", "requests.parquet", "steps.parquet", "timeline.json"


def versions() -> dict[str, str]:
    """What computed the figures."""
    from importlib.metadata import version

    return {name: version(name) for name in ("draftlab", "numpy", "simpy")} | {"python": platform.python_version()}


@dataclass(frozen=True)
class Provenance:
    """Where the figures of a run come from.

    measured, modelled, sampled, synthetic  what of the run is which, in a few words each; the footer of every output
    notes                                   what was estimated, assumed or extrapolated, a sentence each
    """

    seed: int
    trace: str
    trace_origin: str
    profile: str
    profile_digest: str
    target: str
    draft: str
    acceptance: str
    measured: tuple[str, ...] = ()
    modelled: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    synthetic: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=versions)


@dataclass(frozen=True)
class Results:
    """One run. `config` holds the settings under the names of their flags, so that the run can be repeated."""

    metrics: Mapping[str, Any]
    config: Mapping[str, Any]
    provenance: Provenance
    workload: Workload
    log: EventLog
    slo: Mapping[str, float] = field(default_factory=dict)
    interrupted: bool = False
    backend: str = "draftlab-sim"

    def to_frame(self) -> DataFrame:
        """One row per request, the columns of `request_columns`."""
        from pandas import DataFrame

        return DataFrame(request_columns(self.log, self.workload, self.slo))

    def steps_frame(self) -> DataFrame:
        """One row per engine step, the columns of STEP_COLUMNS; seconds are floats, the rest are counts."""
        from pandas import DataFrame

        columns = self.log.step_columns()
        return DataFrame({k: v if k.endswith("_s") else v.astype(np.int64) for k, v in columns.items()})

    def to_dict(self, detailed: bool = False) -> dict[str, Any]:
        """What results.json holds, as JSON types only."""
        head = {
            "backend": self.backend,
            "model_id": self.provenance.target,
            "num_prompts": len(self.workload),
            **{key: self.config.get(key) for key in ("request_rate", "burstiness", "max_concurrency")},
        }
        tail = {"config": self.config, "provenance": self.provenance}
        content: dict[str, Any] = plain({**head, **self.metrics, **tail})
        return content | _details(self.log, self.workload) if detailed else content

    def to_json(self, detailed: bool = False) -> str:
        """results.json as text, one key per line."""
        items = self.to_dict(detailed).items()
        lines = (f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in items)
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def save(self, directory: str | os.PathLike[str], *, detailed: bool = False, timeline: bool = False) -> None:
        """Write the files into `directory`, which is made if need be. All of them or none, results.json last.

        detailed adds vLLM's per-request lists to results.json and writes steps.parquet; timeline writes timeline.json.
        Of an earlier run in the same directory nothing stays behind. Raises InputError if it cannot be written.
        """
        described = {"draftlab": json.dumps(plain({"config": self.config, "provenance": self.provenance}))}
        files: dict[str, Callable[[Path], None] | None] = {
            REQUESTS: lambda path: _write_parquet(path, self.to_frame(), described),
            STEPS: (lambda path: _write_parquet(path, self.steps_frame(), described)) if detailed else None,
            TIMELINE: self._write_timeline if timeline else None,
            RESULTS: lambda path: _write_text(path, self.to_json(detailed)),
        }
        _write_all(Path(directory), files)

    def _write_timeline(self, path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            write_timeline(file, self.log, plain({"config": self.config, "provenance": self.provenance}))


@dataclass(frozen=True)
class SavedResults:
    """A run read back. `steps` is None where it was saved without --save-detailed."""

    metrics: dict[str, Any]
    config: dict[str, Any]
    provenance: dict[str, Any]
    requests: DataFrame
    steps: DataFrame | None


def read_results(directory: str | os.PathLike[str]) -> SavedResults:
    """Read what `Results.save` wrote. Raises InputError where that is not what the directory holds."""
    path = Path(directory)
    try:
        content = json.loads((path / RESULTS).read_text("utf-8"))
        config, provenance = content.pop("config"), content.pop("provenance")
        requests = _read_parquet(path / REQUESTS)
        steps = _read_parquet(path / STEPS) if (path / STEPS).exists() else None
    except OSError as error:
        raise InputError(f"{path}: no finished run of draftlab ({error.strerror}: {error.filename})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path / RESULTS}: not written by draftlab ({error!r})") from None
    return SavedResults(content, config, provenance, requests, steps)


def plain(value: Any) -> Any:
    """`value` in JSON's types: NaN as null, infinity as the word "inf" (as vLLM's request_rate), paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _details(log: EventLog, workload: Workload) -> dict[str, Any]:
    """The lists of vLLM's --save-detailed, one entry per request. What did not happen is null where vLLM writes 0."""
    timings = timings_of(log, workload)
    offsets = np.searchsorted(timings.chunk_request, np.arange(len(workload) + 1)).tolist()
    gaps = timings.gap_s.tolist()
    errors = [log.requests.reason.get(i, "") if failed else "" for i, failed in enumerate(timings.failed)]
    return {
        "input_lens": workload.prompt_tokens.tolist(),
        "output_lens": timings.output_tokens.tolist(),
        "ttfts": plain(timings.ttft_s),
        "itls": [gaps[start + 1 : end] for start, end in itertools.pairwise(offsets)],
        "latencies": plain(timings.e2el_s),
        "start_times": plain(timings.start_s),
        "errors": errors,
    }


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _write_parquet(path: Path, frame: DataFrame, described: dict[str, str]) -> None:
    """Lists and dicts become columns of JSON text, which fastparquet turns back into lists and dicts."""
    import fastparquet

    kinds = {name: "json" if name in JSON_COLUMNS else "utf8" for name in frame.select_dtypes(["object", "string"])}
    fastparquet.write(
        str(path), frame, compression="SNAPPY", write_index=False, object_encoding=kinds, custom_metadata=described
    )


def _read_parquet(path: Path) -> DataFrame:
    import fastparquet

    with path.open("rb") as file:
        frame: DataFrame = fastparquet.ParquetFile(file).to_pandas()
    return frame


def _write_all(directory: Path, files: Mapping[str, Callable[[Path], None] | None]) -> None:
    """Write every file under a temporary name, then rename them in order; a None is a file that must not be there."""
    made: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, write in files.items():
            if write is not None:
                made.append(_temporary(directory, name))
                write(made[-1])
        for name in reversed(list(files)):  # a run without results.json is not finished: it goes first and comes last
            (directory / name).unlink(missing_ok=True)
        for name, write in files.items():
            if write is not None:
                os.replace(_temporary(directory, name), directory / name)
    except OSError as error:
        raise InputError(f"cannot write the results to {directory}: {error.strerror or error}") from None
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _temporary(directory: Path, name: str) -> Path:
    return directory / f".{name}.{os.getpid()}.part"
