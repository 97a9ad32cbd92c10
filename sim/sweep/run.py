"""One run of a sweep, in whatever process it lands: settings in, a row of JSON types out."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from sim.config import SimConfig, settings
from sim.policies import policies
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from sim.results import Results, plain
from sim.simulate import Inputs, simulate
from traces import Workload, load
from traces.errors import InputError
from traces.options import TraceOptions

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """Settings, and digests of the files that they name; the key is a digest of both and of the code."""

    config: SimConfig
    trace_digest: str = ""
    profile_digest: str = ""
    acceptance_digest: str = ""
    policy_digest: str = ""

    @classmethod
    def of(cls, config: SimConfig) -> Task:
        named = (Path(config.trace), Path(config.profile), Path(config.acceptance), _own_module(config.policy))
        return cls(config, *(digest(path) if path is not None and path.exists() else "" for path in named))

    @property
    def key(self) -> str:
        """The name of the run: the same settings on the same inputs with the same code have the same one."""
        inputs = [self.trace_digest, self.profile_digest, self.acceptance_digest, self.policy_digest, code_digest()]
        content = json.dumps([plain(settings(self.config)), inputs], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def execute(task: Task, key: str) -> Row:
    """Simulate. Whatever goes wrong with this run is the `error` of its row; only Ctrl-C is not caught."""
    try:
        return {"run": key, "error": None, **row_of(simulate(task.config, inputs_of(task)))}
    except InputError as error:
        return {"run": key, "error": str(error), **_requested(task.config)}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        return {"run": key, "error": text, **_requested(task.config)}


def row_of(run: Results) -> Row:
    """Settings, metrics and provenance of a run, flat."""
    if run.interrupted:
        raise KeyboardInterrupt  # the run itself ends early and well; its figures are no row
    metrics: Mapping[str, Any] = run.metrics
    books = {f"conservation_{name}": count for name, count in metrics["conservation"].items()}
    config, origin = run.config, run.provenance
    rate = config["request_rate"]
    workload = {"num_requests": len(run.workload), "request_rate_rps": _nominal_rate(rate, run.workload)}
    row = {
        **{name: config[name] for name in config if name != "baseline"},
        "request_rate": str(rate),
        **workload,
        **{name: value for name, value in metrics.items() if name != "conservation"},
        **books,
        "profile_digest": origin.profile_digest,
        "target": origin.target,
        "draft": origin.draft,
        "trace_origin": origin.trace_origin,
        "draftlab_version": origin.versions["draftlab"],
        "provenance": origin,
    }
    return dict(plain(row))


def _nominal_rate(rate: object, workload: Workload) -> float:
    """The rate that was asked for; the workload's own where that is a word."""
    try:
        return float(str(rate))
    except ValueError:
        return workload.offered_rate_rps


def _requested(config: SimConfig) -> Row:
    return dict(plain({name: value for name, value in settings(config).items() if name != "baseline"}))


def inputs_of(task: Task) -> Inputs:
    """What the run replays. Loaded once per process and shared by the runs over it."""
    config = task.config
    options = TraceOptions(**{each.name: getattr(config, each.name) for each in fields(TraceOptions)})
    return Inputs(
        _workload(options, task.trace_digest),
        _profile(config.profile, task.profile_digest),
        _windows(config.acceptance, config.acceptance_rate, task.acceptance_digest),
    )


@lru_cache(maxsize=8)
def _workload(options: TraceOptions, file_digest: str) -> Workload:
    return load(options)


@lru_cache(maxsize=8)
def _profile(name: str, file_digest: str) -> Profile:
    return Profile.load(name)


@lru_cache(maxsize=4)
def _windows(spec: str, mean: float | None, file_digest: str) -> Windows:
    windows = acceptance_source(spec)
    return windows if mean is None else windows.tilted(mean)


def digest(path: Path) -> str:
    """Of a file, or of all files of a directory."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    total = hashlib.sha256()
    for each in files:
        total.update(f"{each.relative_to(path)}\0".encode())
        total.update(_file_digest(each, each.stat().st_mtime_ns))
    return total.hexdigest()


@lru_cache(maxsize=4096)
def _file_digest(path: Path, changed_ns: int) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


@cache
def code_digest() -> str:
    """Of everything that computes the figures: a sweep goes on only with the code that began it."""
    import sim
    import traces

    roots = [Path(next(iter(package.__path__))) for package in (sim, traces)]
    files = [each for root in roots for each in sorted(root.rglob("*")) if each.is_file() and each.suffix != ".pyc"]
    total = hashlib.sha256()
    for each in files:
        total.update(f"{each.name}\0".encode() + each.read_bytes())
    return total.hexdigest()


def _own_module(spec: str) -> Path | None:
    """The file of a policy of the user's own, `module:Class`."""
    name, _, options = spec.partition(":")
    if name in policies or not options.partition(":")[0].isidentifier():
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a package that is not there; the run itself says so
        return None
    return Path(found.origin) if found is not None and found.origin else None
