"""Everything a simulation is told, once: the fields are the flags of `python -m sim`, their docstrings the help."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from sim.replay import bundled
from sim.replay.catalogue import DEFAULT
from traces.options import TraceOptions


@dataclass(frozen=True, kw_only=True)
class SimConfig(TraceOptions):
    """A workload, a server, and what to report. None stands for the default that the help text names."""

    policy: str = "dsde"
    """Length policy: NAME, NAME:key=value,... or your own as module:Class; `list` shows them."""

    cap: str | None = None
    """Straggler cap over the batch: none, mean, median, min, quantile:Q, fixed:C, goodput. Default: the policy's own
    (dsde: mean, others: none)."""

    acceptance_rule: str | None = None
    """Which draft tokens stand: lossless, or lossy: typical[:threshold=T,alpha=A], fuzzy[:jsd=T|kld=T], adasd; `list`
    shows them. Default: the policy's own (adasd: adasd, others: lossless)."""

    baseline: str | None = None
    """Also run this policy on the same requests with the same luck and show both side by side, e.g. `none`."""

    profile: str = DEFAULT
    """Costs of a pair of models on a device: a name (`list` shows them) or a directory that calibrate wrote."""

    acceptance: str = bundled.DEFAULT
    """Which draft tokens are accepted: recorded windows by name (`list` shows them) or in a directory that calibrate
    wrote, or synthetic: iid:A, positions:A,B,..., regimes."""

    acceptance_rate: float | None = None
    """Tilt the acceptance source until the first token of a draft is accepted with this mean chance; the chances of
    later ones, if reached, move with it."""

    max_concurrency: int | None = None
    """Closed loop: at most this many requests in flight; arrival times are then the earliest times (vLLM's bench)."""

    think_time_s: float = 0.0
    """Closed loop: seconds between an answer and the next request of the same client."""

    max_num_seqs: int = 256
    """Sequences that a replica runs at once."""

    max_num_batched_tokens: int = 8192
    """Tokens of one engine step, drafts included."""

    max_model_len: int = 131072
    """Longest prompt and output together; a longer prompt is rejected, a longer output is cut off."""

    block_size: int | None = None
    """Tokens per KV block. Default: the profile's (16)."""

    num_gpu_blocks: int | None = None
    """KV blocks of a replica (vLLM's --num-gpu-blocks-override). Default: what the profile's memory holds."""

    enable_prefix_caching: bool = False
    """Reuse the KV of equal prompt prefixes; for traces that know them (mooncake)."""

    num_replicas: int = 1
    """Replicas of the server."""

    router: str = "round-robin"
    """Which replica takes a request: round-robin, random, least-requests, least-kv."""

    draft_execution: Literal["padded", "compact"] = "padded"
    """padded: every sequence goes through all draft passes of the step, as engines do; compact: each leaves after its
    own."""

    verify_execution: Literal["ragged", "padded"] = "ragged"
    """ragged: each sequence verifies its own draft; padded: all pay for the longest."""

    draft_kind: Literal["autoregressive", "parallel", "early-exit", "eagle", "ngram"] | None = None
    """How k draft tokens are made: a pass for each (autoregressive, early-exit, eagle), one pass for all (parallel), or
    a look-up in the text (ngram). Default: the profile's; another takes the costs of the profile's draft."""

    cudagraph_capture_sizes: tuple[str, ...] = ()
    """Sizes in tokens, e.g. `1 2 4 8 16`: a pass up to the largest is padded to the next one and pays for it. Default:
    the profile's, none in those that ship."""

    switch_cost_ms: float = 0.0
    """Charged whenever the batch verifies another width, its largest k, than in the step before."""

    overlap: bool = False
    """Draft the next tokens while the target verifies, on devices of its own (PEARL); a step takes the longer of the
    two, and tokens behind a rejection were drafted in vain."""

    temperature: float = 0.0
    """Sampling temperature of every request; policies may look at it."""

    goodput: tuple[str, ...] = ()
    """SLOs in milliseconds, e.g. `ttft:500 tpot:50 e2el:10000`."""

    warmup_s: float = 0.0
    """Leave what happens up to this time out of the figures."""

    until_s: float | None = None
    """Stop the clock at this time; requests still running or queued are counted as such."""

    output_dir: Path | None = None
    """Write results.json and requests.parquet there."""

    save_detailed: bool = False
    """Also write steps.parquet, and vLLM's per-request lists into results.json. Needs --output-dir."""

    timeline: bool = False
    """Also write timeline.json for Perfetto (ui.perfetto.dev). Needs --output-dir."""

    plot: Path | None = None
    """Draw the run into this file (.png, .svg or .pdf)."""

    json: bool = False
    """Print results.json on standard output and nothing else."""


OUTPUTS = frozenset({"output_dir", "save_detailed", "timeline", "plot", "json"})


def settings(config: SimConfig) -> dict[str, object]:
    """The settings that decide the figures, by field name: everything but where the output goes."""
    return {each.name: getattr(config, each.name) for each in fields(config) if each.name not in OUTPUTS}
