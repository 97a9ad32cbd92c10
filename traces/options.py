"""Everything that names a workload, once: the fields are the flags of every command that takes one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from traces.arrivals import RampUpStrategy


@dataclass(frozen=True)
class TraceOptions:
    """Which requests arrive, when, and how long they are. None stands for the default that the help text names."""

    trace: str = "sharegpt"
    """A named trace (`python -m traces list`), `random`, or a trace file (.gz too):
    ShareGPT JSON, CSV of Azure, BurstGPT or plain lengths, JSONL of Mooncake or vLLM, vLLM bench result."""

    trace_format: str | None = None
    """Format of the file where its content should not decide (`python -m traces list` names them)."""

    num_prompts: int | None = None
    """Number of requests. Default: all of a file, 1000 of a named trace."""

    skip_requests: int = 0
    """Leave out this many requests at the head of the trace."""

    oversample: bool = False
    """Repeat a file, shifted in time by its span, until there are --num-prompts requests."""

    request_rate: str | None = None
    """Requests per second, `inf` (all at once), `trace` (its own times) or `trace*4` (at four times the density).
    Default: the trace's own times, else its listed rate, else inf."""

    burstiness: float | None = None
    """Shape of the gamma distributed gaps: 1 is Poisson, below 1 burstier, inf evenly spaced. Default: 1."""

    ramp_up_strategy: RampUpStrategy | None = None
    """Let the rate climb from --ramp-up-start-rps to --ramp-up-end-rps over the requests."""

    ramp_up_start_rps: float | None = None
    """Requests per second at the start of the ramp-up."""

    ramp_up_end_rps: float | None = None
    """Requests per second at the end of the ramp-up."""

    arrival_jitter_s: float | None = None
    """Spread the trace's own times over this many seconds each (3 undoes the 3 s clock of Mooncake)."""

    input_len: int | None = None
    """Prompt tokens of the random trace. Default: 1024."""

    output_len: int | None = None
    """Output tokens of the random trace (default: 128), or of every request of any other trace."""

    range_ratio: float | None = None
    """Lengths of the random trace are uniform in [len*(1-r), len*(1+r)]. Default: 0."""

    tokenizer: str | None = None
    """Counts the tokens of ShareGPT and vLLM custom text: a Hugging Face id or directory, or tiktoken:NAME.
    Default: an estimate from the length of the text."""

    vllm_filter: bool = False
    """Keep of a file what vLLM keeps of ShareGPT: prompt and output >= 4, prompt <= 1024, together <= 2048."""

    keep_failed: bool = False
    """Keep BurstGPT's failed requests (0 response tokens) as requests of 1 output token."""

    time_unit: Literal["s", "ms"] | None = None
    """Unit of numeric times in the trace file. Default: ms for mooncake, else s."""

    seed: int = 0
    """Seed of everything drawn: arrivals, sampled lengths, jitter."""


def flag(field: str) -> str:
    """`input_len` -> `--input-len`."""
    return "--" + field.replace("_", "-")


def given(options: TraceOptions) -> set[str]:
    """Names of the fields that differ from their default, that is, that the user has set."""
    return {each.name for each in fields(TraceOptions) if getattr(options, each.name) != each.default}
