"""The log of a vLLM server with --enable-logging-iteration-details: every engine step, and the size of the KV pool.

    Engine 000: Iteration(25): 1 context requests, 49 context tokens, 7 generation requests, 7 generation tokens,
    iteration elapsed time: 157.95 ms, CPU KV cache usage: 2.8%

Lines of several engines may be interleaved, lines may be cut; what cannot be read is counted and named, never guessed.
Wording: vLLM 0.32 [C].
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.files import read_text

Array = NDArray[np.float64]

STEP = re.compile(
    r"(?:(?P<time>\d\d-\d\d \d\d:\d\d:\d\d) \[[^\]\n]*\] )?"
    r"(?:Engine (?P<engine>\d+): )?Iteration\((?P<index>\d+)\): (?P<contexts>\d+) context requests, "
    r"(?P<context_tokens>\d+) context tokens, (?P<generations>\d+) generation requests, "
    r"(?P<generation_tokens>\d+) generation tokens, iteration elapsed time: (?P<elapsed_ms>\d+(?:\.\d+)?) ms"
    r"(?:, [^\n]{0,20}KV cache usage: (?P<usage>\d+(?:\.\d+)?)%)?"
)
BEGINS = "Iteration("
POOL = re.compile(r"KV cache size: ([\d,]+) tokens")
VERSION = re.compile(r"\bversion (\d+\.\d+\S*)")


@dataclass(frozen=True)
class EngineSteps:
    """Engine steps in order, one array element each, float64.

    contexts, context_tokens        requests in prefill, and their tokens in this step
    generations, generation_tokens  decoding requests, and the tokens verified for them: 1 + draft tokens each
    seconds                         elapsed time of the step as the engine counts it
    kv_tokens                       tokens in the cache, those of the step included; NaN where nothing tells
    """

    contexts: Array
    context_tokens: Array
    generations: Array
    generation_tokens: Array
    seconds: Array
    kv_tokens: Array

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: slice | NDArray[np.bool_]) -> EngineSteps:
        return EngineSteps(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def concat(cls, parts: list[EngineSteps]) -> EngineSteps:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def less_host(self, host_s: float) -> EngineSteps:
        """The same steps, timed by clients, without the host's time in each; a tenth of a step is left at least."""
        return replace(self, seconds=np.maximum(self.seconds - host_s, 0.1 * self.seconds))

    @property
    def new_tokens(self) -> Array:
        return self.context_tokens + self.generation_tokens

    @property
    def num_seqs(self) -> Array:
        return self.contexts + self.generations

    @property
    def drafts_per_request(self) -> Array:
        """Mean draft tokens of a decoding request, 0 in steps without one."""
        return np.where(self.generations > 0, self.generation_tokens / np.maximum(self.generations, 1) - 1, 0.0)


@dataclass(frozen=True)
class ServerLog:
    """One log. kv_tokens: size of the pool, version: of vLLM, None where it does not say. gaps: what is missing.

    clock_s: when each step was logged, in seconds of the year, whole ones; NaN where a line does not say.
    """

    path: str
    steps: EngineSteps
    clock_s: Array
    kv_tokens: int | None
    version: str | None
    gaps: tuple[str, ...]

    def take(self, rows: NDArray[np.bool_]) -> ServerLog:
        return replace(self, steps=self.steps.take(rows), clock_s=self.clock_s[rows])

    @property
    def draft_tokens(self) -> int | None:
        """k, if every decoding request verifies as many draft tokens in every step; 0: no speculation."""
        drafts = np.unique(self.steps.drafts_per_request[self.steps.generations > 0])
        return int(drafts[0]) if len(drafts) == 1 and float(drafts[0]).is_integer() else None


def read_log(path: Path) -> ServerLog:
    """Read a log (.gz too). Raises InputError if it holds no step."""
    text = read_text(path).text
    steps: dict[str, list[tuple[float, ...]]] = {}
    for found in STEP.finditer(text):
        engine = found["engine"] or "0"
        names = ("index", "contexts", "context_tokens", "generations", "generation_tokens")
        row = (
            *(int(found[name]) for name in names),
            float(found["elapsed_ms"]) / 1e3,
            float(found["usage"] or "nan") / 100,
            _seconds(found["time"]),
        )
        steps.setdefault(engine, []).append(row)
    read = sum(map(len, steps.values()))
    if not read:
        raise InputError(
            f"{path}: no engine steps; start vLLM with --enable-logging-iteration-details (expected lines with "
            "'Iteration(N): .. context requests, .. iteration elapsed time: .. ms')"
        )
    gaps = []
    if unread := text.count(BEGINS) - read:
        gaps.append(f"{path}: {unread} of {read + unread} step lines are cut or of another wording: left out")
    for engine, rows in sorted(steps.items()):
        index = np.array([row[0] for row in rows])
        forward = np.diff(index)
        if lost := int((forward[forward > 1] - 1).sum()):
            gaps.append(f"{path}: engine {engine}: {lost} steps are missing between those that were logged")
        if back := int((forward <= 0).sum()):
            gaps.append(f"{path}: engine {engine}: the count of steps starts again {back} times (several servers?)")
    if len(steps) > 1:
        gaps.append(f"{path}: {len(steps)} engines: their steps are taken as those of equal machines")
    table = np.array([row[1:] for engine in sorted(steps) for row in steps[engine]], np.float64)
    table = table[(table[:, 0] + table[:, 2] > 0) & (table[:, 4] > 0)]  # a step without requests costs nobody anything
    if not len(table):
        raise InputError(f"{path}: none of the {read} engine steps served a request: nothing was measured")
    pool, version = POOL.search(text), VERSION.search(text)
    kv_tokens = int(pool[1].replace(",", "")) if pool else None
    table[:, 5] *= kv_tokens or np.nan
    return ServerLog(
        path=str(path),
        steps=EngineSteps(*table.T[:-1]),
        clock_s=table[:, -1],
        kv_tokens=kv_tokens,
        version=version[1] if version else None,
        gaps=tuple(gaps),
    )


def _seconds(time: str | None) -> float:
    """`11-30 19:16:11` in seconds of the year."""
    if time is None:
        return float("nan")
    try:
        return seconds_of_year(datetime.datetime.strptime(f"2024-{time}", "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return float("nan")


def seconds_of_year(time: datetime.datetime) -> float:
    """As in a leap year, so that the log's dates, which lack the year, and those of results agree."""
    return (time.replace(year=2024) - datetime.datetime(2024, 1, 1)).total_seconds()
