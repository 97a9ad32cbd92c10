"""A scrape of /metrics: what speculation did since the server started, and how its KV cache is laid out.

Counters of all engines are added. A server of another version may name them otherwise: then the reader says which of
the names it looked for are missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from traces.errors import InputError
from traces.files import read_text

SAMPLE = re.compile(r"^(vllm:[\w:]+)(?:\{(.*)\})?\s+(\S+)", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
PREFIX = "vllm:spec_decode_num_"
DRAFTS, DRAFT_TOKENS, ACCEPTED, ACCEPTED_AT = (
    PREFIX + name
    for name in ("drafts_total", "draft_tokens_total", "accepted_tokens_total", "accepted_tokens_per_pos_total")
)


@dataclass(frozen=True)
class Counters:
    """Sums over requests and steps. accepted_at: drafts of which position 1, 2, ... was accepted."""

    drafts: int
    draft_tokens: int
    accepted: int
    accepted_at: tuple[int, ...]

    def __sub__(self, earlier: Counters) -> Counters:
        before = earlier.accepted_at + (0,) * (len(self.accepted_at) - len(earlier.accepted_at))
        return Counters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted - earlier.accepted,
            tuple(now - then for now, then in zip(self.accepted_at, before, strict=False)),
        )


@dataclass(frozen=True)
class Scrape:
    """counters: None for a server without speculation. block_size, kv_tokens, kv_bytes: None where it does not say."""

    path: str
    counters: Counters | None
    block_size: int | None
    kv_tokens: int | None
    kv_bytes: int | None
    prefix_caching: bool | None


def read_scrape(path: Path) -> Scrape:
    """Read the text of one scrape. Raises InputError for one without vLLM's names, or with half of the counters."""
    totals: dict[str, float] = {}
    at: dict[int, float] = {}
    cache: dict[str, str] = {}
    for name, labels, value in SAMPLE.findall(read_text(path).text):
        label = dict(LABEL.findall(labels))
        if name == ACCEPTED_AT:
            position = int(label.get("position", -1))
            at[position] = at.get(position, 0.0) + _number(value, name, path)
        elif name in (DRAFTS, DRAFT_TOKENS, ACCEPTED):
            totals[name] = totals.get(name, 0.0) + _number(value, name, path)
        elif name == "vllm:cache_config_info":
            cache = label
        else:
            totals.setdefault("other", 0.0)
    if not totals and not at and not cache:
        raise InputError(f"{path}: no metrics of vLLM (names that start with `vllm:`)")
    named = [name for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED) if name in totals]
    if named and (len(named) < 3 or not at):
        missing = [name for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED) if name not in totals] + [ACCEPTED_AT] * (not at)
        raise InputError(f"{path}: {', '.join(missing)} missing beside {named[0]}: another version's metric names?")
    return Scrape(
        path=str(path),
        counters=Counters(
            drafts=int(totals[DRAFTS]),
            draft_tokens=int(totals[DRAFT_TOKENS]),
            accepted=int(totals[ACCEPTED]),
            accepted_at=tuple(int(at.get(position, 0)) for position in range(max(at) + 1)),
        )
        if named
        else None,
        block_size=_whole(cache.get("block_size")),
        kv_tokens=_whole(cache.get("kv_cache_size_tokens")),
        kv_bytes=_whole(cache.get("kv_cache_memory_bytes")),
        prefix_caching={"True": True, "False": False}.get(cache.get("enable_prefix_caching", "")),
    )


def _number(text: str, name: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{path}: {name}: {text!r} is no number") from None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
