"""The profile: everything the simulator knows about a pair of models on a device, and where each figure comes from.

A directory with `profile.json` (who, where, how much memory) and `cost.json` (the fitted costs), written by
`python -m calibrate` or `python -m calibrate.silicon`; `forward.parquet` (the measured points) may lie beside them and
is not needed to simulate. Profiles that ship with the package are composed by name in `sim.replay.catalogue`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.replay.cost import ForwardCost, HostCost
from traces.errors import InputError
from traces.parquet import write_parquet

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 1
DRAFT_KINDS = ("autoregressive", "parallel", "early-exit", "eagle", "ngram")


@dataclass(frozen=True)
class Model:
    """One of the two models as it is loaded: weights and KV cache in bytes over all its GPUs."""

    name: str
    huggingface_id: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    dtype: str
    tensor_parallel_size: int


@dataclass(frozen=True)
class Profile:
    """A draft/target pair on a device. Built by `Profile.load`; raises InputError if a figure makes no sense.

    name                        what the command line calls it
    device, device_memory_bytes one GPU
    engine                      name and version of the engine the costs hold for
    target_model, draft_model   names, sizes, dtype, tensor parallelism
    draft_kind                  how k tokens cost: see sim.replay.drafting
    num_kv_blocks, block_size   the KV pool both models share, blocks of `block_size` tokens
    target, draft, host         costs in seconds
    versions, git_revision, date  of what measured it; None where there is no such thing
    provenance                  what -> measured, modelled or prior, in words
    residuals                   model -> phase -> absolute percent of the fit
    """

    name: str
    device: str
    device_memory_bytes: int
    engine: str
    target_model: Model
    draft_model: Model
    draft_kind: str
    num_kv_blocks: int
    block_size: int
    target: ForwardCost
    draft: ForwardCost
    host: HostCost
    versions: Mapping[str, str] = field(default_factory=dict)
    git_revision: str | None = None
    date: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    residuals: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("device_memory_bytes", "num_kv_blocks", "block_size"):
            if getattr(self, name) <= 0:
                raise InputError(f"{name}: expected a number > 0, got {getattr(self, name)!r}")
        if self.draft_kind not in DRAFT_KINDS:
            raise InputError(f"draft_kind: expected one of {', '.join(DRAFT_KINDS)}, got {self.draft_kind!r}")

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit the KV pool."""
        return self.num_kv_blocks * self.block_size

    @property
    def pair(self) -> str:
        """Both models in a word, as recorded acceptance names them."""
        return f"{self.target_model.name} with {self.draft_model.name}"

    @property
    def dtype(self) -> str:
        """The target's weights."""
        return self.target_model.dtype

    @property
    def tensor_parallel_size(self) -> int:
        """GPUs of the target, which are all the GPUs of the pair."""
        return self.target_model.tensor_parallel_size

    @cached_property
    def digest(self) -> str:
        """sha256 over the canonical JSON of both files: equal digests, equal simulations."""
        documents = {"profile": self._profile_document(), "cost": self._cost_document()}
        text = json.dumps(documents, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def names() -> tuple[str, ...]:
        """The profiles that ship with the package."""
        from sim.replay import catalogue

        return catalogue.names()

    @classmethod
    def load(cls, name_or_directory: str | os.PathLike[str]) -> Profile:
        """A profile that ships with the package, by name, or one in a directory. Raises InputError in one line."""
        path = Path(name_or_directory)
        if path.is_dir():
            return _read(path)
        from sim.replay import catalogue

        return catalogue.compose(os.fspath(name_or_directory))

    def save(self, directory: str | os.PathLike[str], points: pd.DataFrame | None = None) -> None:
        """Write the profile as a directory. A new one appears whole or not at all; in an older one, file by file.

        `points` goes into `forward.parquet`. Raises InputError if the place holds something that is no profile.
        """
        target = Path(directory)
        if target.is_file() or (target.is_dir() and any(target.iterdir()) and not (target / "profile.json").is_file()):
            raise InputError(f"{target}: exists and is no profile; name a new directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            temporary.chmod(0o755)
            _write_json(temporary / "profile.json", self._profile_document())
            _write_json(temporary / "cost.json", self._cost_document())
            if points is not None:
                write_parquet(temporary / "forward.parquet", points)
            for written in sorted(temporary.iterdir(), key=lambda p: p.name == "profile.json"):
                if target.is_dir():
                    os.replace(written, target / written.name)
            if not target.is_dir():
                os.replace(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _profile_document(self) -> dict[str, Any]:
        apart = ("target", "draft", "host", "residuals")
        document: dict[str, Any] = {"format_version": FORMAT_VERSION}
        for entry in fields(self):
            if entry.name not in apart:
                value = getattr(self, entry.name)
                document[entry.name] = asdict(value) if isinstance(value, Model) else value
        return document

    def _cost_document(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "target": self.target.to_dict(),
            "draft": self.draft.to_dict(),
            "host": asdict(self.host),
            "residuals": self.residuals,
        }


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _read(directory: Path) -> Profile:
    profile, cost = _document(directory / "profile.json"), _document(directory / "cost.json")
    where = str(directory / "profile.json")
    values: dict[str, Any] = {
        "name": _value(profile, "name", str, where),
        "device": _value(profile, "device", str, where),
        "device_memory_bytes": _value(profile, "device_memory_bytes", int, where),
        "engine": _value(profile, "engine", str, where),
        "draft_kind": _value(profile, "draft_kind", str, where),
        "num_kv_blocks": _value(profile, "num_kv_blocks", int, where),
        "block_size": _value(profile, "block_size", int, where),
        "target_model": _model(profile, "target_model", where),
        "draft_model": _model(profile, "draft_model", where),
        "versions": profile.get("versions") or {},
        "git_revision": profile.get("git_revision"),
        "date": profile.get("date"),
        "provenance": profile.get("provenance") or {},
        "residuals": cost.get("residuals") or {},
    }
    cost_file = str(directory / "cost.json")
    for role in ("target", "draft"):
        values[role] = ForwardCost.from_dict(_value(cost, role, dict, cost_file), f"{cost_file}: {role}")
    host = _value(cost, "host", dict, cost_file)
    try:
        values["host"] = HostCost(host.get("base_s", -1), host.get("per_seq_s", -1), str(host.get("provenance", "")))
    except InputError as error:
        raise InputError(f"{cost_file}: {error}") from None
    try:
        return Profile(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _document(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent}: is no profile, {path.name} is missing (python -m calibrate writes one)"
        ) from None
    except (OSError, ValueError) as error:  # no text, no JSON, a figure that is not finite
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(document).__name__}")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise InputError(f"{path}: format_version: expected {FORMAT_VERSION}, got {version!r}")
    return document


def _finite(text: str) -> float:
    """A figure; JSON itself has none that is not finite, Python's reader takes NaN, Infinity and 1e999 for some."""
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is no finite figure")
    return float(text)


def _value(document: Mapping[str, Any], name: str, kind: type, where: str) -> Any:
    value = document.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{where}: {name}: expected {kind.__name__}, got {value!r:.60}")
    return value


def _model(document: Mapping[str, Any], name: str, where: str) -> Model:
    section = _value(document, name, dict, where)
    kinds = {"str": str, "int": int}
    return Model(**{f.name: _value(section, f.name, kinds[str(f.type)], f"{where}: {name}") for f in fields(Model)})
