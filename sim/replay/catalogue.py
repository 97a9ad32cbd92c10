"""The profiles that ship with the package, composed by name from one cost table per device.

    DEVICE-TARGET-tpN[-fp8][+DRAFT[-tp1]]       h100-llama-3.1-70b-tp8+llama-3.2-1b

A device file holds the fitted cost of each (model, dtype, tensor parallelism); a pair is put together when it is asked
for, so 300 pairs fit in 300 kB. Without `+DRAFT` the family's default draft is taken. Hugging Face ids may stand for
model names. `python -m calibrate.silicon --embed` writes the device files.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from sim.replay.cost import ForwardCost, HostCost
from sim.replay.profile import FORMAT_VERSION, Model, Profile
from traces.errors import InputError

DEFAULT = "h100-llama-3.1-70b-tp8"
DEVICES = ("h100", "h200", "b200", "a100", "l40s")
TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}

BLOCK_SIZE = 16  # tokens, vLLM's default
MEMORY_UTILIZATION = 0.9  # vLLM's gpu_memory_utilization
RESERVE_BYTES = 3 * 2**30  # per GPU: activations of one full step, CUDA graphs, NCCL buffers; a stated prior
SMALLEST_POOL_TOKENS = 8192  # a pool that holds less serves nobody

HOST = HostCost(
    base_s=1e-3,
    per_seq_s=3.5e-5,
    provenance="stated prior: 1 ms + 0.035 ms per sequence and engine step; kernel tables do not contain it",
)


@dataclass(frozen=True)
class Row:
    """One line of `--profile list`. kv_tokens: how many tokens the KV pool holds."""

    name: str
    device: str
    tensor_parallel_size: int
    dtype: str
    target: str
    draft: str
    kv_tokens: int
    note: str


@dataclass(frozen=True)
class NotOffered:
    """A shape that somebody will look for, and why it is not there."""

    shape: str
    reason: str


@dataclass(frozen=True)
class _Pair:
    device: str
    target: str
    dtype: str
    tp: int
    draft: str
    draft_tp: int

    @property
    def name(self) -> str:
        draft = "" if self.draft == _default_draft(self.target) and self.draft_tp == self.tp else f"+{self.draft}"
        if self.draft_tp != self.tp:
            draft += f"-tp{self.draft_tp}"
        return f"{_shape(self.device, self.target, self.dtype, self.tp)}{draft}"

    @property
    def cost_keys(self) -> tuple[str, str]:
        """Where a device file keeps the costs of the target and of the draft."""
        return cost_key(self.target, self.dtype, self.tp), cost_key(self.draft, "bf16", self.draft_tp)


@cache
def _file(name: str) -> Mapping[str, Any]:
    text = resources.files("sim.replay").joinpath("profiles", f"{name}.json").read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    if document["format_version"] != FORMAT_VERSION:
        raise InputError(f"sim/replay/profiles/{name}.json: format_version: expected {FORMAT_VERSION}")
    return document


def models() -> Mapping[str, Mapping[str, Any]]:
    """The models that profiles can be made of: name -> sizes, family, Hugging Face id."""
    result: Mapping[str, Mapping[str, Any]] = _file("models")["models"]
    return result


def _default_draft(target: str) -> str:
    draft: str = _file("models")["default_draft"][models()[target]["family"]]
    return draft


def drafts(target: str) -> tuple[str, ...]:
    """The models that can draft for `target`, its default first: same family, so same tokens, and smaller."""
    known = models()
    smaller = [
        name
        for name, model in known.items()
        if model["family"] == known[target]["family"] and 3 * model["parameters"] < known[target]["parameters"]
    ]
    return tuple(sorted(smaller, key=lambda name: (name != _default_draft(target), known[name]["parameters"])))


def targets() -> tuple[str, ...]:
    """The models that something can draft for."""
    return tuple(name for name in models() if drafts(name))


def cost_key(model: str, dtype: str, tp: int) -> str:
    """Where a device file keeps the cost of a model."""
    return f"{model}/{dtype}/tp{tp}"


def weight_bytes(model: str, dtype: str) -> int:
    """Bytes of all weights: 2 per parameter; fp8 halves the matrices but not the embedding and the output layer."""
    sizes = models()[model]
    if dtype == "bf16":
        return int(2 * sizes["parameters"])
    return int(sizes["parameters"] + sizes["embedding_parameters"])


def kv_bytes_per_token(model: str) -> int:
    """Bytes of keys and values of one token over all layers, in bfloat16."""
    sizes = models()[model]
    return int(2 * 2 * sizes["num_hidden_layers"] * sizes["num_key_value_heads"] * sizes["head_dim"])


def names() -> tuple[str, ...]:
    """Every profile that can be loaded by name, the default first."""
    found = [name for device in DEVICES for name in names_of(device, _file(device))]
    return tuple(sorted(found, key=lambda name: name != DEFAULT))


def names_of(device: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """The profiles that a device file's content is enough for."""
    return tuple(
        pair.name for pair in _pairs() if pair.device == device and not isinstance(_blocks(pair, document), str)
    )


def rows() -> tuple[Row, ...]:
    """What `--profile list` prints."""
    result = []
    for pair in _pairs():
        device = _file(pair.device)
        blocks = _blocks(pair, device)
        if not isinstance(blocks, str):
            fits = device["costs"][pair.cost_keys[0]]["residuals"]["all"]
            note = f"fit to kernels: median {fits['median_percent']:.1f} %, p95 {fits['p95_percent']:.1f} %"
            tokens = blocks * BLOCK_SIZE
            result.append(Row(pair.name, device["name"], pair.tp, pair.dtype, pair.target, pair.draft, tokens, note))
    return tuple(sorted(result, key=lambda row: row.name != DEFAULT))


def not_offered() -> tuple[NotOffered, ...]:
    """Shapes without a profile and the reason: not in the tables, or too large for the GPUs. One line for each kind."""
    sizes: dict[tuple[str, str, str, str], list[int]] = {}
    for pair in _pairs():
        device = _file(pair.device)
        alone = _missing(pair.cost_keys[0], device) or _too_large(pair, device, with_draft=False)
        why = alone or _blocks(pair, device)
        if isinstance(why, str):
            draft = "" if alone else f"+{pair.draft}"
            tps = sizes.setdefault((_shape(pair.device, pair.target, pair.dtype, 0), draft, why, pair.dtype), [])
            tps += [pair.tp] if pair.tp not in tps else []
    return tuple(
        NotOffered(shape.replace("tp0", "tp" + "/".join(map(str, tps))) + draft, why)
        for (shape, draft, why, _), tps in sizes.items()
    )


def compose(name: str, device: Mapping[str, Any] | None = None) -> Profile:
    """The profile called `name`, from `device` (a device file's content) or from the one that ships.

    Raises InputError that lists close names, or says why the shape is not offered.
    """
    pair = _parse(name)
    device = device or _file(pair.device)
    blocks = _blocks(pair, device)
    if isinstance(blocks, str):
        others = [other for other in names() if other.startswith(f"{pair.device}-{pair.target}-")]
        hint = f"; offered: {', '.join(others[:4])}" if others else ""
        raise InputError(f"profile {name!r} is not offered: {blocks}{hint}")
    costs: Mapping[str, Any] = device["costs"]
    target, draft = (costs[key] for key in pair.cost_keys)
    return Profile(
        name=pair.name,
        device=device["name"],
        device_memory_bytes=device["memory_bytes"],
        engine=device["engine"],
        target_model=_model(pair.target, pair.dtype, pair.tp),
        draft_model=_model(pair.draft, "bf16", pair.draft_tp),
        draft_kind="autoregressive",
        num_kv_blocks=blocks,
        block_size=BLOCK_SIZE,
        target=ForwardCost.from_dict(target["cost"], f"{pair.device}: {pair.cost_keys[0]}"),
        draft=ForwardCost.from_dict(draft["cost"], f"{pair.device}: {pair.cost_keys[1]}"),
        host=HOST,
        versions=device["versions"],
        provenance={
            **device["provenance"],
            "host": HOST.provenance,
            "kv_pool": f"modelled: {MEMORY_UTILIZATION} of GPU memory less weights of both models and "
            f"{RESERVE_BYTES / 2**30:g} GiB reserve (prior), keys and values of both models in bfloat16",
            "draft": f"bfloat16, tensor parallel {pair.draft_tp}"
            + (" like the target, which vLLM demands of a draft model" if pair.draft_tp == pair.tp else ""),
        },
        residuals={"target": target["residuals"], "draft": draft["residuals"]},
    )


def _shape(device: str, target: str, dtype: str, tp: int) -> str:
    return f"{device}-{target}-tp{tp}{'' if dtype == 'bf16' else '-' + dtype}"


def _pairs() -> Iterator[_Pair]:
    """Every pair with the draft on all GPUs; the variant with the draft on one GPU is loaded by name only."""
    for device in DEVICES:
        for target in targets():
            for dtype in DTYPES:
                for draft in drafts(target):
                    for tp in TENSOR_PARALLEL_SIZES:
                        yield _Pair(device, target, dtype, tp, draft, tp)


def _missing(key: str, device: Mapping[str, Any]) -> str | None:
    """Why the tables have no such cost, or None."""
    reason: str | None = device["missing"].get(key)
    return None if reason is None else f"{key.split('/')[0]}: {reason}"


def _left_bytes(pair: _Pair, device: Mapping[str, Any], with_draft: bool = True) -> float:
    """What the weights leave for keys and values on the fullest GPU; negative if they do not fit."""
    weights = weight_bytes(pair.target, pair.dtype) / pair.tp
    if with_draft:
        weights += weight_bytes(pair.draft, "bf16") / pair.draft_tp
    return float(MEMORY_UTILIZATION * device["memory_bytes"] - RESERVE_BYTES - weights)


def _too_large(pair: _Pair, device: Mapping[str, Any], with_draft: bool = True) -> str | None:
    """Why the weights do not fit, or None."""
    if _left_bytes(pair, device, with_draft) > 0:
        return None
    weights = weight_bytes(pair.target, pair.dtype) + with_draft * weight_bytes(pair.draft, "bf16")
    room = MEMORY_UTILIZATION * device["memory_bytes"] - RESERVE_BYTES
    return f"{weights / 2**30:.0f} GiB of weights do not fit GPUs with room for {room / 2**30:.0f} GiB each"


def _blocks(pair: _Pair, device: Mapping[str, Any]) -> int | str:
    """Blocks of the KV pool of one GPU, or why there is no such profile."""
    why = next(filter(None, (_missing(key, device) for key in pair.cost_keys)), None) or _too_large(pair, device)
    if why:
        return why
    per_token = kv_bytes_per_token(pair.target) / pair.tp + kv_bytes_per_token(pair.draft) / pair.draft_tp
    blocks = int(_left_bytes(pair, device) // (BLOCK_SIZE * per_token))
    if blocks * BLOCK_SIZE < SMALLEST_POOL_TOKENS:
        return f"the weights leave a KV pool of {blocks * BLOCK_SIZE} tokens, less than {SMALLEST_POOL_TOKENS}"
    if any(key not in device["costs"] for key in pair.cost_keys):
        return "not embedded; python -m calibrate.silicon makes it"
    return blocks


def _model(name: str, dtype: str, tp: int) -> Model:
    sizes = models()[name]
    return Model(
        name=name,
        huggingface_id=sizes["huggingface_id"],
        parameters=sizes["parameters"],
        weight_bytes=weight_bytes(name, dtype),
        kv_bytes_per_token=kv_bytes_per_token(name),
        dtype=DTYPES[dtype],
        tensor_parallel_size=tp,
    )


def _parse(name: str) -> _Pair:
    text = DEFAULT if name.strip().lower() == "default" else name.strip().lower()
    match = re.fullmatch(r"(\w+?)-(.+?)-tp(\d+)(?:-(bf16|fp8))?(?:\+(.+?)(?:-tp(\d+))?)?", text)
    if match is None or match[1] not in DEVICES:
        raise _unknown(name)
    target = _model_name(match[2])
    if target not in targets():
        raise _unknown(name)
    draft = _model_name(match[5]) if match[5] else _default_draft(target)
    if draft not in drafts(target):
        raise InputError(f"profile {name!r}: {match[5]} cannot draft for {target}; known: {', '.join(drafts(target))}")
    tp = int(match[3])
    draft_tp = int(match[6] or tp)
    if tp not in TENSOR_PARALLEL_SIZES or draft_tp not in (1, tp):
        raise _unknown(name)
    return _Pair(match[1], target, match[4] or "bf16", tp, draft, draft_tp)


def _model_name(text: str) -> str | None:
    """A model by its name, a spelling of it, or a Hugging Face id."""

    def letters(spelling: str) -> str:
        bare = spelling.lower().rsplit("/", 1)[-1].removeprefix("meta-").removesuffix("-instruct")
        return re.sub(r"[^a-z0-9.]", "", bare)

    return next((name for name in models() if letters(name) == letters(text)), None)


def _unknown(name: str) -> InputError:
    close = difflib.get_close_matches(name.lower(), names(), n=3, cutoff=0.5) or [DEFAULT]
    return InputError(f"unknown profile {name!r}: no such directory, and no such name; close: {', '.join(close)}")
