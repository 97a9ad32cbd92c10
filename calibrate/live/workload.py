"""Requests with text: prompts as they are, or the lengths and times of a trace filled with the text of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.prompts import load_prompts, render
from traces import Workload, load
from traces.errors import InputError
from traces.options import TraceOptions, flag, given
from traces.timing import arrive

PROMPTS = "prompts"
"""The trace whose requests are the prompts themselves."""

OUTPUT_TOKENS = 64
REFUSED = frozenset(
    {"trace_format", "input_len", "range_ratio", "arrival_jitter_s", "tokenizer", "vllm_filter", "keep_failed"}
    | {"time_unit", "oversample"}
)
"""Options that say nothing about prompts."""


@dataclass(frozen=True)
class LiveRequests:
    """A workload and the token ids of each of its prompts."""

    workload: Workload
    prompts: tuple[tuple[int, ...], ...]


def live_requests(options: TraceOptions, prompts: str | Path | None, tokenizer: Any) -> LiveRequests:
    """What `--trace` and `--prompts` name.

    `prompts`      each prompt of the file (None: the embedded set; "tiny": the tiny pair's) is a request of up to
                   --output-len tokens; when more are asked for they come again in the same order
    another trace  its lengths, arrivals and tasks; a prompt of n tokens is the first n of the prompts' texts, joined
                   from another prompt on for each request

    Raises InputError.
    """
    if options.trace == PROMPTS:
        return _of_prompts(options, prompts, tokenizer)
    workload = load(options)
    if workload.prefix_blocks is not None:
        workload = replace(workload, prefix_blocks=None)
    texts = [render(prompt, tokenizer) for prompt in load_prompts(prompts, seed=options.seed)]
    filled = tuple(_filled(texts, index, count) for index, count in enumerate(workload.prompt_tokens.tolist()))
    note = f"Prompts are text of {_name(prompts)}, cut to the trace's lengths."
    return LiveRequests(replace(workload, notes=(*workload.notes, note)), filled)


def _of_prompts(options: TraceOptions, prompts: str | Path | None, tokenizer: Any) -> LiveRequests:
    for field in sorted(REFUSED & given(options)):
        raise InputError(f"{flag(field)} applies to a trace of lengths; the prompts have their own")
    wanted = None if options.num_prompts is None else options.skip_requests + options.num_prompts
    found = load_prompts(prompts, seed=options.seed)
    notes: tuple[str, ...] = ()
    if wanted is not None and wanted > len(found):
        notes = (f"{len(found)} prompts repeated to make {wanted} requests.",)
        found = [found[index % len(found)] for index in range(wanted)]
    found = found[options.skip_requests : wanted]
    if not found:
        raise InputError(f"--skip-requests {options.skip_requests}: there are fewer prompts")
    ids = tuple(tuple(render(prompt, tokenizer)) for prompt in found)
    tasks = tuple(dict.fromkeys(prompt.task for prompt in found))
    output = OUTPUT_TOKENS if options.output_len is None else options.output_len
    if output < 1:
        raise InputError(f"--output-len {output}: expected a whole number of at least 1")
    workload = Workload(
        name=PROMPTS,
        origin=f"replayed from {_name(prompts)}",
        arrival_s=np.zeros(len(ids)),
        prompt_tokens=np.array([len(each) for each in ids], np.int64),
        output_tokens=np.full(len(ids), output, np.int64),
        task=tasks,
        task_id=np.array([tasks.index(prompt.task) for prompt in found], np.int64),
        notes=notes,
    )
    return LiveRequests(arrive(workload, options), ids)


def _filled(texts: Sequence[Sequence[int]], start: int, count: int) -> tuple[int, ...]:
    ids: list[int] = []
    while len(ids) < count:
        ids += texts[start % len(texts)]
        start += 1
    return tuple(ids[:count])


def _name(prompts: str | Path | None) -> str:
    return "the embedded prompts" if prompts is None else f"prompts {Path(prompts).name}"
