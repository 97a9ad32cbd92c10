"""Named traces that need no file: lengths sampled from an embedded joint distribution, arrivals from a fitted shape."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.randomness import Stream, generator

NAMES = (
    "sharegpt", "sharegpt-long", "azure-conv", "azure-code", "mooncake", "burstgpt", "arxiv",
    "cnn_dailymail", "xsum", "gsm8k", "hotpotqa", "nq", "humaneval", "wmt14",
)  # fmt: skip
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Quantiles:
    """A distribution of token counts: `tokens[i]` at cumulative probability `levels[i]`, linear between, 0 to 1."""

    levels: NDArray[np.float64]
    tokens: NDArray[np.float64]

    def at(self, probability: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.maximum(np.rint(np.interp(probability, self.levels, self.tokens)), 1).astype(np.int64)


@dataclass(frozen=True)
class ModelledArrivals:
    """A renewal process of gamma gaps in place of the trace's own times."""

    rate_rps: float
    gamma_shape: float
    note: str


@dataclass(frozen=True)
class NamedTrace:
    """One file of traces/data, built by traces/build_named.py.

    joint              counts [bins, bins] of requests by rank of prompt (rows) and of output (columns), or None where
                       prompt and output are taken as independent
    rows               requests behind the figures
    arrivals           None for a trace without times; it then arrives at default_rate_rps, Poisson
    notes              what is assumed, one sentence each
    """

    name: str
    summary: str
    source: str
    licence: str
    rows: int
    tokenizer: str
    task: str
    prompt: Quantiles
    output: Quantiles
    joint: NDArray[np.float64] | None
    arrivals: ModelledArrivals | None
    default_rate_rps: float
    notes: tuple[str, ...]

    def sample(self, n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prompt and output tokens of `n` requests. The first n of a larger sample are the sample of n."""
        prompt_rank = generator(seed, Stream.PROMPT_TOKENS).random(n)
        output_rank = generator(seed, Stream.OUTPUT_TOKENS).random(n)
        if self.joint is not None:
            output_rank = _conditional_rank(self.joint, prompt_rank, output_rank)
        return self.prompt.at(prompt_rank), self.output.at(output_rank)


def _conditional_rank(
    joint: NDArray[np.float64], given_rank: NDArray[np.float64], uniform: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Turn uniform numbers into output ranks that go with the prompt ranks: inverse of the row's distribution."""
    bins = len(joint)
    edges = np.linspace(0.0, 1.0, bins + 1)
    row_of = np.minimum((given_rank * bins).astype(np.int64), bins - 1)
    rank = np.empty_like(uniform)
    for row in range(bins):
        members = row_of == row
        cumulative = np.concatenate([[0.0], np.cumsum(joint[row])]) / joint[row].sum()
        rank[members] = np.interp(uniform[members], cumulative, edges)
    return rank


@cache
def named_trace(name: str) -> NamedTrace:
    """The named trace; `name` is one of NAMES."""
    data: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return NamedTrace(
        name=name,
        summary=data["summary"],
        source=data["source"],
        licence=data["licence"],
        rows=data["rows"],
        tokenizer=data["tokenizer"],
        task=data["task"],
        prompt=_quantiles(data["prompt"]),
        output=_quantiles(data["output"]),
        joint=None if data["joint"] is None else np.array(data["joint"], np.float64),
        arrivals=ModelledArrivals(**data["arrivals"]) if data["arrivals"] else None,
        default_rate_rps=data["default_rate_rps"],
        notes=tuple(data["notes"]),
    )


def _quantiles(data: dict[str, list[float]]) -> Quantiles:
    return Quantiles(np.array(data["levels"]), np.array(data["tokens"]))
