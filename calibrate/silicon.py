"""Profiles from measured kernel tables: `python -m calibrate.silicon`, no GPU needed.

NVIDIA's aiconfigurator-core (Apache-2.0) ships tables of kernels timed under vLLM on real GPUs. One forward pass is put
together from them, kernel by kernel, over a grid of batches, and the fitted cost goes into a profile.

What is measured: matrix products, all-reduces, attention of decodes (one new token) and of whole prompts.
What is modelled here, because no table has it:
  - attention with q > 1 new tokens on L cached ones: the cost of decoding at that length, which reads the cache once,
    plus what q new tokens cost more than one in a prompt. `--attention independent` takes q sequences of one token
    instead, the pessimistic bound: the cache is read q times.
  - a prompt chunk on a cached prefix: its share of the query-key pairs of the whole prompt, and never less than reading
    the cache.
  - element-wise kernels, which the package estimates from memory bandwidth.
What is not in it: the host (see `sim.replay.catalogue.HOST`), sampling, and the padding of CUDA graphs.
"""

from __future__ import annotations

import bisect
import importlib.metadata
import itertools
import json
import logging
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sim.replay import catalogue
from sim.replay.profile import FORMAT_VERSION, Profile
from traces.command import parse
from traces.errors import InputError, run_command

if TYPE_CHECKING:
    import pandas as pd

    from calibrate.fit import Fit, Points

PACKAGE = "aiconfigurator-core"
NOTICE = (
    "Derived from the kernel tables of NVIDIA aiconfigurator-core (Copyright NVIDIA CORPORATION & AFFILIATES, "
    "Apache License 2.0). Modified: kernels are summed to forward passes and fitted; these are not NVIDIA's figures."
)


@dataclass(frozen=True)
class Device:
    """A GPU: the package's name for it, what we call it, and its memory in MiB as nvidia-smi reports it."""

    system: str
    name: str
    memory_mib: int


DEVICES = {
    "h100": Device("h100_sxm", "NVIDIA H100 SXM 80GB", 81559),
    "h200": Device("h200_sxm", "NVIDIA H200 SXM 141GB", 143771),
    "b200": Device("b200_sxm", "NVIDIA B200 SXM 180GB", 183359),
    "a100": Device("a100_sxm", "NVIDIA A100 SXM 80GB", 81920),
    "l40s": Device("l40s", "NVIDIA L40S 48GB", 46068),
}
MODELLED_KERNELS = ("embedding", "add_norm_1", "add_norm_2", "act_gate", "p2p")
LARGEST_PROMPT_BATCH = 256  # the tables of prompt attention end there
PADDING_MARGIN = 1.1
TOKEN_SIZES = (  # where the tables hold matrix products: tiles and one row past them
    *range(1, 18), 32, 33, 48, 49, 64, 65, 80, 81, 96, 97, 112, 113, 128, 129, 160, 161, 192, 193, 224, 225, 256, 257,
    512, 513, 768, 769, 1024, 1025, 1280, 1281, 1536, 1537, 1792, 1793, 2048, 2049, 2304, 2560, 2816, 3072, 3328, 3584,
    3840, 4096, 4097, 4352, 4353, 8192, 16384,
)  # fmt: skip
LONGEST_VERIFICATION = 32  # new tokens per sequence; more is a prompt chunk

Attention = Literal["shared", "independent"]


@dataclass(frozen=True)
class Shape:
    """What one forward cost is for. device, model: names of the catalogue; dtype: bf16 or fp8."""

    device: str
    model: str
    dtype: str
    tensor_parallel_size: int

    @property
    def key(self) -> str:
        """Where the device file keeps it."""
        return catalogue.cost_key(self.model, self.dtype, self.tensor_parallel_size)


class NotMeasuredError(Exception):
    """The tables lack a shape; the message says what is missing."""


class KernelTables:
    """The measured kernels of one shape as times of parts of a pass, in ms. Raises NotMeasuredError if they lack it."""

    def __init__(self, shape: Shape) -> None:
        from aiconfigurator_core.sdk.engine import EngineHandle
        from aiconfigurator_core.sdk.errors import PerfDataNotAvailableError

        self.shape = shape
        try:
            with _model_directory(shape.model) as directory:
                self._engine = EngineHandle.compile(
                    directory,
                    DEVICES[shape.device].system,
                    "vllm",
                    tp_size=shape.tensor_parallel_size,
                    gemm_quant_mode=catalogue.DTYPES[shape.dtype],
                    kvcache_quant_mode="bfloat16",
                    fmha_quant_mode="bfloat16",
                )
            decode, prompt = self._kernels(self._decode), self._kernels(self._prompt)
            self._attention = decode["attention"][0]
            self._prompt_attention = prompt["attention"][0]
            self._logits = decode["logits_gemm"][0]
            self._rest = [i for i, _ in decode.values() if i not in (self._attention, self._logits)]
        except (PerfDataNotAvailableError, ValueError) as error:
            raise NotMeasuredError(self._reason(str(error))) from None
        for name, (_, source) in decode.items():
            reduces = name.endswith(("ar_1", "ar_2", "embedding_ar"))
            modelled = name in MODELLED_KERNELS or (reduces and shape.tensor_parallel_size == 1)
            if source != "silicon" and not modelled:
                raise NotMeasuredError(f"{name} is {source}, not measured")

    def _kernels(self, evaluate: Callable[..., list[tuple[str, float, float, str]]]) -> dict[str, tuple[int, str]]:
        """name -> (index, source), asking for one kernel after the other until the list ends."""
        found: dict[str, tuple[int, str]] = {}
        for i in range(64):
            try:
                ((name, _, _, source),) = evaluate([i], 4, 512)
            except ValueError as error:
                if "out of range" in str(error):
                    break
                raise
            found[name.split("_", 1)[1]] = (i, source)
        return found

    def _decode(self, kernels: list[int], batch: int, length: int, rows: int | None = None) -> list[Any]:
        result: list[Any] = self._engine.evaluate_generation_ops(kernels, batch_size=batch, s=length, x=rows)
        return result

    def _prompt(self, kernels: list[int], batch: int, length: int) -> list[Any]:
        result: list[Any] = self._engine.evaluate_context_ops(kernels, batch_size=batch, s=length)
        return result

    def _reason(self, message: str) -> str:
        head = catalogue.models()[self.shape.model]["head_dim"]
        if "fp8" in message:
            return "no fp8 kernels in the tables"
        if f"head_size: {head}" in message or f"head_size={head}" in message:
            return f"no attention kernels with head size {head} in the tables"
        return f"not in the tables: {message.splitlines()[0]:.100}"

    def tokens_ms(self, rows: int, logit_rows: int) -> float:
        """All kernels but attention: `rows` new tokens, of which `logit_rows` go through the output layer.

        Some sizes, one row past a tile most of all, are timed far slower than larger ones. A pass can be padded, and
        engines do pad, so a size costs at most `PADDING_MARGIN` more than any larger one. Smaller dips are noise.
        """
        first = bisect.bisect_right(TOKEN_SIZES, rows)
        larger = self._cheapest_from[first] if first < len(TOKEN_SIZES) else math.inf
        return min(self._rest_ms(rows), PADDING_MARGIN * larger) + self._sum_ms([self._logits], logit_rows)

    def _rest_ms(self, rows: int) -> float:
        return self._sum_ms(self._rest, rows)

    def _sum_ms(self, kernels: list[int], rows: int) -> float:
        return float(sum(kernel[1] for kernel in self._decode(kernels, 1, 2, rows)))

    @cached_property
    def _cheapest_from(self) -> list[float]:
        """For each of TOKEN_SIZES the cheapest time of it and all larger ones."""
        times = [self._rest_ms(size) for size in TOKEN_SIZES]
        return list(itertools.accumulate(reversed(times), min))[::-1]

    def decode_attention_ms(self, num_seqs: int, length: int) -> float:
        """Attention of one new token per sequence over `length` tokens, itself included."""
        time = float(self._decode([self._attention], num_seqs, length)[0][1])
        if math.isfinite(time):
            return time
        if num_seqs == 1:
            return 2 * self.decode_attention_ms(1, length // 2)
        return self.decode_attention_ms(num_seqs // 2, length) * num_seqs / (num_seqs // 2)

    def prompt_attention_ms(self, num_seqs: int, query_tokens: int) -> float:
        """Attention within whole prompts, nothing cached.

        The package adds rotary embedding and cache writes, estimated, to prompts but not to decodes. So that passes of
        both kinds agree, a prompt of one token costs what a decode does, and a longer one what the table adds to that.
        """
        return self.decode_attention_ms(num_seqs, 1) + self._more_than_one_ms(num_seqs, query_tokens)

    def _more_than_one_ms(self, num_seqs: int, query_tokens: int) -> float:
        """What prompts of `query_tokens` cost more than prompts of one token."""
        if 1 < query_tokens < 16:  # the tables step from 1 to 16; between them the package's interpolation is erratic
            return self._more_than_one_ms(num_seqs, 16) * (query_tokens - 1) / 15
        batch = min(num_seqs, LARGEST_PROMPT_BATCH)
        one, many = (float(self._prompt([self._prompt_attention], batch, q)[0][1]) for q in (1, query_tokens))
        return max(many - one, 0.0) * num_seqs / batch

    def attention_ms(self, num_seqs: int, query_tokens: int, context: int, attention: Attention = "shared") -> float:
        """Attention of `query_tokens` new tokens on `context` cached ones per sequence: see the head of the file."""
        length = context + query_tokens
        if query_tokens == 1:
            return self.decode_attention_ms(num_seqs, length)
        if context == 0:
            return self.prompt_attention_ms(num_seqs, query_tokens)
        if attention == "independent" and query_tokens <= LONGEST_VERIFICATION:
            return self.decode_attention_ms(num_seqs * query_tokens, length)
        reads_once = self.decode_attention_ms(num_seqs, length) + self._more_than_one_ms(num_seqs, query_tokens)
        if query_tokens <= LONGEST_VERIFICATION:
            return reads_once
        share = query_tokens * (context + length) / length**2
        return max(reads_once, share * self.prompt_attention_ms(num_seqs, length))


@contextmanager
def _model_directory(model: str) -> Iterator[str]:
    """A directory with the config.json of a model, which is all the package wants to know of it."""
    sizes = catalogue.models()[model]
    config = {name: value for name, value in sizes.items() if name not in ("family", "huggingface_id", "parameters")}
    config |= {
        "architectures": [sizes["architecture"]],
        "model_type": sizes["architecture"].removesuffix("ForCausalLM").lower(),
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "attention_bias": False,
    }
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield directory


@dataclass(frozen=True)
class Grid:
    """The batches that are put together. Every combination within `max_tokens` new tokens and `max_kv_tokens`."""

    num_seqs: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512)
    query_tokens: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 17)
    context_tokens: tuple[int, ...] = (16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    chunk_seqs: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    chunk_tokens: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    most_chunks_on_prefix: int = 8  # a token budget does not hold many chunks of long prompts at once
    chunk_context: tuple[int, ...] = (0, 1024, 2048, 4096, 8192, 16384, 32768)
    max_tokens: int = 16384
    max_kv_tokens: int = 2_097_152  # more does not fit beside the weights


def sample(tables: KernelTables, grid: Grid = Grid(), attention: Attention = "shared") -> Points:
    """Forward passes put together from the tables: decode, verify, prefill, chunk (on a cached prefix) and mixed."""
    from calibrate.fit import Points

    phases: list[str] = []
    columns: list[tuple[float, float, float, float, float]] = []

    def add(phase: str, parts: Sequence[tuple[int, int, int]], logit_rows: int, attention_ms: float) -> None:
        """parts: (sequences, query tokens each, context each)"""
        new = sum(b * q for b, q, _ in parts)
        kv = sum(b * (q + c) for b, q, c in parts)
        pairs = sum(b * (q * c + q * (q + 1) / 2) for b, q, c in parts)
        seconds = 1e-3 * (tables.tokens_ms(new, logit_rows) + attention_ms)
        phases.append(phase)
        columns.append((new, kv, pairs, sum(b for b, _, _ in parts), seconds))

    for b in grid.num_seqs:
        for q in grid.query_tokens:
            for c in grid.context_tokens:
                if b * q <= grid.max_tokens and b * (q + c) <= grid.max_kv_tokens:
                    time = tables.attention_ms(b, q, c, attention)
                    add("decode" if q == 1 else "verify", [(b, q, c)], b * q, time)
    for b in grid.chunk_seqs:
        for q in grid.chunk_tokens:
            for c in grid.chunk_context if b <= grid.most_chunks_on_prefix else (0,):
                if b * q <= grid.max_tokens and b * (q + c) <= grid.max_kv_tokens:
                    add("chunk" if c else "prefill", [(b, q, c)], b, tables.attention_ms(b, q, c))
    launch = tables.decode_attention_ms(1, 1)  # one attention call serves decodes and chunk, so it is launched once
    for b in grid.num_seqs[3::4]:
        for q in (1, 5):
            for c in grid.context_tokens[1::3]:
                for chunk in grid.chunk_tokens[1::2]:
                    for prefix in grid.chunk_context[:5:4]:
                        parts = [(b, q, c), (1, chunk, prefix)]
                        if b * q + chunk <= grid.max_tokens and b * (q + c) <= grid.max_kv_tokens:
                            extra = max(tables.attention_ms(1, chunk, prefix) - launch, 0.0)
                            add("mixed", parts, b * q + 1, tables.attention_ms(b, q, c, attention) + extra)
    return Points(np.array(phases), *(np.array(column, dtype=np.float64) for column in zip(*columns, strict=True)))


def fit_shape(shape: Shape, grid: Grid = Grid(), attention: Attention = "shared") -> tuple[Points, Fit]:
    """The points of one shape and the cost fitted to them. Raises NotMeasuredError."""
    from calibrate.fit import fit

    points = sample(KernelTables(shape), grid, attention)
    return points, fit(points)


def device_document(device: str, attention: Attention = "shared") -> dict[str, Any]:
    """What a device file holds, without costs: `costs` and `missing` are empty."""
    from aiconfigurator_core.sdk.perf_database import resolve_query_version

    gpu = DEVICES[device]
    package = importlib.metadata.version(PACKAGE)
    vllm = str(resolve_query_version(gpu.system, "vllm", "current"))
    verify = (
        "modelled as one read of the cache plus the arithmetic of q tokens"
        if attention == "shared"
        else "bounded by q independent sequences (pessimistic)"
    )
    return {
        "format_version": FORMAT_VERSION,
        "notice": NOTICE,
        "name": gpu.name,
        "memory_bytes": gpu.memory_mib * 2**20,
        "engine": f"vllm {vllm}",
        "versions": {PACKAGE: package, "vllm": vllm},
        "provenance": {
            "forward": f"measured kernels ({PACKAGE} {package}, vllm {vllm}), summed to passes and fitted; "
            f"attention with q > 1 new tokens {verify}; element-wise kernels modelled"
        },
        "costs": {},
        "missing": {},
    }


def entry(fitted: Fit) -> dict[str, Any]:
    """What a device file holds of one fitted cost."""
    return {
        "cost": fitted.cost.to_dict(),
        "residuals": {phase: asdict(found) for phase, found in fitted.residuals.items()},
        "worst": list(fitted.worst),
    }


@dataclass(frozen=True)
class Command:
    """Turn measured kernel tables into profiles, and print how well the fitted cost meets them."""

    device: tuple[str, ...] = tuple(DEVICES)
    """GPUs: h100, h200, b200, a100, l40s."""
    target: tuple[str, ...] = ()
    """Target models, by profile name; none: all."""
    tp: tuple[int, ...] = catalogue.TENSOR_PARALLEL_SIZES
    """Tensor parallel sizes."""
    dtype: tuple[Literal["bf16", "fp8"], ...] = ("bf16", "fp8")
    """Weights of the target. The draft is always bf16."""
    attention: Attention = "shared"
    """Verification of q tokens: read the cache once (modelled), or cost as q independent sequences (upper bound)."""
    output: Path | None = None
    """Write each profile as a directory under this one."""
    embed: bool = False
    """Rewrite the tables that ship with the package (maintainers)."""


def run(command: Command) -> int:
    """The command line without its parsing. Raises InputError."""
    try:
        importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"{PACKAGE} is not installed: pip install 'draftlab[silicon]'") from None
    _check("device", command.device, tuple(DEVICES))
    _check("target", command.target, catalogue.targets())
    _check("tp", command.tp, catalogue.TENSOR_PARALLEL_SIZES)
    if command.embed and command != Command(embed=True):
        raise InputError("--embed rewrites everything that ships: it takes no other option")
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)  # it reports tables of other models at length
    print(f"{'shape':38} {'points':>6}  absolute percent, median / p95: all, then by phase")
    for device in command.device:
        document, points = _fit_device(device, command)
        if command.embed:
            _embed(device, document)
        if command.output:
            _write(document, device, points, command)
    return 0


def _check(option: str, given: Sequence[Any], known: Sequence[Any]) -> None:
    for value in given:
        if value not in known:
            raise InputError(f"--{option}: unknown {value!r}; known: {', '.join(map(str, known))}")


def _shapes(device: str, command: Command) -> list[Shape]:
    """The shapes that the chosen pairs need, each once; those whose weights alone exceed the GPU are left out."""
    found: dict[Shape, None] = {}
    for target in command.target or catalogue.targets():
        for dtype in command.dtype:
            for tp in command.tp:
                if catalogue.weight_bytes(target, dtype) / tp < 0.9 * DEVICES[device].memory_mib * 2**20:
                    found |= {Shape(device, target, dtype, tp): None}
                    found |= {
                        Shape(device, draft, "bf16", t): None for draft in catalogue.drafts(target) for t in {1, tp}
                    }
    return list(found)


def _fit_device(device: str, command: Command) -> tuple[dict[str, Any], dict[str, Points]]:
    document, points = device_document(device, command.attention), {}
    for shape in sorted(_shapes(device, command), key=lambda shape: shape.key):
        label = f"{device} {shape.key}"
        try:
            points[shape.key], fitted = fit_shape(shape, attention=command.attention)
        except NotMeasuredError as error:
            document["missing"][shape.key] = str(error)
            print(f"{label:38} not offered: {error}")
            continue
        document["costs"][shape.key] = entry(fitted)
        parts = (f"{phase} {r.median_percent:.1f}/{r.p95_percent:.1f}" for phase, r in fitted.residuals.items())
        print(f"{label:38} {len(points[shape.key]):6}  {'  '.join(parts)}", flush=True)
    return document, points


def _embed(device: str, document: Mapping[str, Any]) -> None:
    """One cost a line, so that a difference shows which one moved."""
    sections = ("costs", "missing")
    head = {name: value for name, value in document.items() if name not in sections}
    lines = [json.dumps(head, indent=1)[:-2]]
    for section in sections:
        entries = []
        for key, value in document[section].items():
            kept = value if section == "missing" else {name: value[name] for name in ("cost", "residuals")}
            entries.append(f"  {json.dumps(key)}: {json.dumps(kept, separators=(',', ':'))}")
        lines.append(f' "{section}": {{\n' + ",\n".join(entries) + "\n }")
    path = Path(catalogue.__file__).parent / "profiles" / f"{device}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(temporary, path)


def _write(document: Mapping[str, Any], device: str, points: Mapping[str, Points], command: Command) -> None:
    assert command.output is not None
    for name in catalogue.names_of(device, document):
        profile = catalogue.compose(name, document)
        chosen = profile.target_model.name in (command.target or catalogue.targets())
        if chosen and profile.tensor_parallel_size in command.tp:
            profile.save(command.output / profile.name, _frame(profile, points))
            print(f"wrote {command.output / profile.name}")


def _frame(profile: Profile, points: Mapping[str, Points]) -> pd.DataFrame:
    """The points of both models as `forward.parquet` keeps them; the tables hold medians only."""
    import pandas as pd

    dtypes = {long: short for short, long in catalogue.DTYPES.items()}
    frames = []
    for role, model in (("target", profile.target_model), ("draft", profile.draft_model)):
        found = points[catalogue.cost_key(model.name, dtypes[model.dtype], model.tensor_parallel_size)]
        frame = pd.DataFrame({name: getattr(found, name) for name in POINT_COLUMNS})
        frame.insert(0, "model", role)
        frame["query_tokens"] = frame["new_tokens"] / frame["num_seqs"]
        frame["context_tokens"] = (frame["kv_tokens"] - frame["new_tokens"]) / frame["num_seqs"]
        frames.append(frame.assign(p10=np.nan, p90=np.nan, repeats=0))
    return pd.concat(frames, ignore_index=True)


POINT_COLUMNS = ("phase", "num_seqs", "new_tokens", "kv_tokens", "query_key_pairs", "seconds")


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of `python -m calibrate.silicon`. Returns the exit status."""
    description = "Profiles from the measured kernel tables of NVIDIA aiconfigurator-core; needs no GPU."
    return run_command(lambda: run(parse(Command, "calibrate.silicon", description, args)))


if __name__ == "__main__":
    sys.exit(main())
