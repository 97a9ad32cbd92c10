"""Everything a live run is told: the fields are the flags of `python -m calibrate.live`, their docstrings the help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from sim.config import OUTPUTS
from traces.command import at_least
from traces.errors import InputError
from traces.options import TraceOptions


@dataclass(frozen=True, kw_only=True)
class LiveConfig(TraceOptions):
    """A workload with text, a pair of models, a server, and what to report. Flags of python -m sim mean the same."""

    trace: str = "prompts"
    """`prompts`: each of --prompts is a request of up to --output-len (64) tokens, arriving by --request-rate; or any
    trace of python -m sim, whose lengths and times are filled with the prompts' text."""

    prompts: Path | None = None
    """HumanEval, GSM8K, MT-bench, Spec-Bench, vLLM custom JSONL or plain text. Default: 96 prompts in 8 tasks, and for
    tiny held-out text of its own tasks."""

    target: str = "tiny"
    """`tiny` (small models that ship with the package), `smollm2`, a Hugging Face id or a local directory."""

    draft: str | None = None
    """A model (id or directory; `draft-s` or `draft-m` of tiny; `eagle` of smollm2, or a directory that
    calibrate.distill wrote), `skip:14,16,18` or `ngram`. Default: the named target's own."""

    policy: str = "dsde"
    """Length policy: NAME, NAME:key=value,... or your own as module:Class; python -m sim --policy list shows them."""

    cap: str | None = None
    """Straggler cap over the batch. Default: the policy's own (dsde: mean, others: none)."""

    acceptance_rule: str | None = None
    """Which draft tokens stand: lossless, or lossy: typical, fuzzy, adasd with their options; python -m sim
    --acceptance-rule list shows them. Default: the policy's own."""

    clock: Literal["wall", "model"] = "wall"
    """wall: steps take the time they take, and arrivals are waited for. model: steps take what the cost model of
    --profile says, so that a run decides as its simulation does, whatever the machine."""

    skip_idle: bool = False
    """On the wall clock: jump over stretches in which nothing is to do."""

    profile: str | None = None
    """Cost model for --clock model and for policies that ask what a step would take: a directory that calibrate wrote,
    or a name."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""

    dtype: str = "auto"
    """auto (float32 on a CPU, otherwise bfloat16), float32, bfloat16 or float16."""

    threads: int = 1
    """Threads of a CPU that torch computes with."""

    temperature: float = 0.0
    """Of both models; 0 is greedy."""

    top_p: float = 1.0
    """Of both models."""

    top_k: int = 0
    """Of both models; 0 is all tokens."""

    ignore_eos: bool = False
    """Write on beyond end tokens, so that every request has the output length of its trace (vLLM's --ignore-eos)."""

    max_draft_tokens: int = 16
    """Longest draft of a step, whatever the policy asks."""

    max_concurrency: int | None = None
    """Closed loop: at most this many requests in flight (vLLM's bench)."""

    think_time_s: float = 0.0
    """Closed loop: seconds between an answer and the next request of the same client."""

    max_num_seqs: int = 32
    """Sequences that run at once."""

    max_num_batched_tokens: int = 512
    """Tokens of one engine step, drafts included."""

    max_model_len: int | None = None
    """Longest prompt and output together. Default: what the longest request takes, as far as the positions reach."""

    block_size: int = 16
    """Tokens per KV block."""

    num_gpu_blocks: int | None = None
    """KV blocks of the pool. Default: enough for --max-num-seqs of --max-model-len."""

    draft_execution: Literal["padded", "compact"] = "padded"
    """padded: every sequence goes through all draft passes of the step, as engines do; compact: each leaves after its
    own."""

    verify_execution: Literal["ragged", "padded"] = "ragged"
    """What --clock model charges for verification; the real pass is ragged where the model allows it."""

    goodput: tuple[str, ...] = ()
    """SLOs in milliseconds, e.g. `ttft:500 tpot:50 e2el:10000`."""

    warmup_s: float = 0.0
    """Leave what happens up to this time out of the figures."""

    output_dir: Path | None = None
    """Write results.json, requests.parquet and outputs.jsonl (the texts, each as soon as it is finished) there."""

    save_detailed: bool = False
    """Also write steps.parquet, and vLLM's per-request lists into results.json. Needs --output-dir."""

    timeline: bool = False
    """Also write timeline.json for Perfetto (ui.perfetto.dev). Needs --output-dir."""

    plot: Path | None = None
    """Draw the run into this file (.png, .svg or .pdf)."""

    json: bool = False
    """Print results.json on standard output and nothing else."""

    def __post_init__(self) -> None:
        at_least(self, threads=1, max_draft_tokens=1, block_size=1)
        if self.clock == "model" and self.profile is None:
            raise InputError("--clock model needs --profile, whose cost model makes the time")
        if self.clock == "model" and self.skip_idle:
            raise InputError("--skip-idle is for the wall clock; the model clock never waits")
        if not 0 <= self.warmup_s < float("inf"):
            raise InputError(f"--warmup-s is {self.warmup_s}, expected 0 or more")


def settings(config: LiveConfig) -> dict[str, object]:
    """The settings that decide the figures, by field name."""
    return {each.name: getattr(config, each.name) for each in fields(config) if each.name not in OUTPUTS}
