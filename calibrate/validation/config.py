"""Everything a validation is told: the fields are the flags of `python -m calibrate.validate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from traces.arrivals import DrawnRate, parse_request_rate
from traces.command import at_least
from traces.errors import InputError

UNSETTLED = frozenset({"policy", "request_rate", "repeats", "output", "gate", "calibration", "sim_seeds"})
"""Fields that may change when a validation is gone on with: they add runs, or only read them."""


@dataclass(frozen=True, kw_only=True)
class ValidateConfig:
    """Which pair, which policies, at which loads, and where the report goes."""

    pair: str = "tiny"
    """Target: `tiny`, `smollm2`, a Hugging Face id or a local directory."""

    draft: str | None = None
    """As of python -m calibrate. Default: the named target's own."""

    policy: tuple[str, ...] = ("none", "fixed:k=2", "dsde")
    """Length policies, each NAME or NAME:key=value,..."""

    request_rate: tuple[str, ...] = ("2",)
    """Requests per second, or inf."""

    output: Path = Path("validation")
    """Directory for the live runs, report.md, report.html and validation.json. The same command goes on there."""

    calibration: Path | None = None
    """Directory that python -m calibrate made with other prompts. Default: OUTPUT/calibration, made with one half of
    the prompts; the validated requests are of the other half."""

    prompts: Path | None = None
    """Prompts, as of python -m calibrate. With --calibration all of them are validated."""

    num_prompts: int = 32
    """Requests of each run."""

    output_len: int = 64
    """Most tokens of a request. Greedy, a request is as long as its own text, live and simulated."""

    repeats: int = 3
    """Live runs of each policy and rate, interleaved."""

    sim_seeds: int = 8
    """Simulations of each policy and rate with held-out windows, each with other windows."""

    temperature: float = 0.0
    """Of both models. Above 0 decisions are not compared, nor requests with their own windows."""

    skip_idle: bool = False
    """Live: jump over stretches in which nothing is to do."""

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""

    dtype: str = "auto"
    """auto (float32 on a CPU, otherwise bfloat16), float32, bfloat16 or float16."""

    threads: int = 1
    """Threads of a CPU that torch computes with."""

    max_num_seqs: int = 32
    """Sequences that run at once."""

    max_num_batched_tokens: int = 512
    """Tokens of one engine step."""

    calibration_prompts: int = 96
    """Most prompts of the calibration that is made here."""

    budget_s: float | None = None
    """Seconds for the forward costs of the calibration that is made here."""

    seed: int = 0
    """Of arrivals and prompts."""

    gate: bool = False
    """Exit with status 1 unless every check of validation.json holds."""

    def __post_init__(self) -> None:
        at_least(self, num_prompts=2, output_len=2, repeats=1, sim_seeds=1, threads=1, max_num_seqs=1, seed=0)
        at_least(self, max_num_batched_tokens=1, calibration_prompts=2)
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"--temperature {self.temperature:g}: expected 0 or more")
        for rate in self.request_rate:
            if not isinstance(parse_request_rate(rate), DrawnRate):
                raise InputError(f"--request-rate {rate}: expected requests per second, or inf")
        for flag, words in (("policy", self.policy), ("request-rate", self.request_rate)):
            if not words or len(set(words)) < len(words):
                raise InputError(f"--{flag}: expected at least one, and each once; got {' '.join(words) or 'none'}")


def settled(config: ValidateConfig) -> dict[str, str]:
    """What must be equal for a validation to go on with another's runs."""
    return {name: str(value) for name, value in asdict(config).items() if name not in UNSETTLED}
