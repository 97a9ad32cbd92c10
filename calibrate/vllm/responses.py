"""Responses of a server with --per-request-spec-decode-metrics detailed: what each step drafted, and what stood.

One JSON response a file, or one a line. The per-step arrays list the steps that drafted; a look-up also takes steps
without a draft, which only the number of tokens betrays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.files import read_text


@dataclass(frozen=True)
class Response:
    """drafted, accepted: tokens of each drafting step; plain_steps: decode steps that drafted nothing."""

    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    plain_steps: int


def read_responses(path: Path) -> list[Response]:
    """Read responses. Raises InputError for one without per-step arrays."""
    text = read_text(path).text
    try:
        documents = [json.loads(text)]
    except json.JSONDecodeError:
        try:
            documents = [json.loads(line) for line in text.splitlines() if line.strip()]
        except json.JSONDecodeError as error:
            raise InputError(f"{path}: neither one JSON response nor one a line: {error}") from None
    if not documents:
        raise InputError(f"{path}: holds no response")
    return [_response(document, f"{path}: response {index}") for index, document in enumerate(documents)]


def _response(document: Any, where: str) -> Response:
    try:
        told = document["metrics"]["speculative_decoding"]
        drafted, accepted = tuple(told["per_step_drafted"]), tuple(told["per_step_accepted"])
        tokens = int(document["usage"]["completion_tokens"])
    except (KeyError, TypeError):
        raise InputError(
            f"{where}: no per_step_drafted and per_step_accepted: serve with --per-request-spec-decode-metrics detailed"
        ) from None
    if len(drafted) != len(accepted) or any(not 0 <= a <= d for d, a in zip(drafted, accepted, strict=True)):
        raise InputError(f"{where}: per_step_accepted does not fit per_step_drafted")
    # the first token is the prefill's; the last step may have emitted past the end, which is cut off
    plain = max(tokens - 1 - sum(accepted) - len(accepted), 0)
    return Response(drafted, accepted, plain)
