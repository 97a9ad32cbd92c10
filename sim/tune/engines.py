"""The schedule in the words of an engine, and the rules that the engine would hold it against.

vllm    --speculative-config with num_speculative_tokens_per_batch_size (vLLM 0.32, Dynamic Speculative Decoding) [C]
sglang  --speculative-adaptive-config with one candidate per range of batch sizes (SGLang 0.5.23) [C]

A context axis, [first, last, first context, last context, K], is proposed for vLLM (RFC 48627) and in no release.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from sim.policies.batch_table import KEY, parse_table
from sim.replay.profile import Profile
from sim.tune.schedule import Row, Schedule
from traces.errors import InputError

Engine = Literal["vllm", "sglang"]

VLLM_METHODS = {"autoregressive": "draft_model", "eagle": "eagle", "ngram": "ngram"}
SGLANG_ALGORITHMS = {"autoregressive": "STANDALONE", "eagle": "EAGLE", "ngram": "NGRAM"}


def vllm_config(rows: Sequence[Row], profile: Profile) -> dict[str, Any]:
    """The value of --speculative-config; one K throughout needs no table."""
    config: dict[str, Any] = {}
    if profile.draft_kind in VLLM_METHODS:
        config["method"] = VLLM_METHODS[profile.draft_kind]
    if profile.draft_kind != "ngram":
        config["model"] = profile.draft_model.huggingface_id
    return config | {"num_speculative_tokens": max(1, *(row[2] for row in rows)), KEY: [list(row) for row in rows]}


def check_vllm(config: dict[str, Any], max_num_seqs: int) -> None:
    """Raises InputError where vLLM's documented rules refuse the configuration, or would not do what it says.

    Whole numbers; at least one token to speculate; ranges in order, none overlapping, the first from 1; 0 <= K <=
    num_speculative_tokens (a larger K is cut off without a word); no range beyond max_num_seqs (never reached).
    """
    most, table = config.get("num_speculative_tokens"), config.get(KEY)
    if type(most) is not int or most < 1:
        raise InputError(f"num_speculative_tokens is {most!r}, expected a whole number of at least 1")
    numbers = [value for row in table if isinstance(row, list) for value in row] if isinstance(table, list) else []
    if any(type(value) is not int for value in numbers):
        raise InputError(f"{KEY}: {json.dumps(table)} holds something that is no whole number")
    rows = parse_table(table)
    if max(row[2] for row in rows) > most:
        raise InputError(f"{KEY}: a K is above num_speculative_tokens, which is {most}")
    if rows[-1][1] > max_num_seqs:
        raise InputError(f"{KEY}: the last range ends at {rows[-1][1]}, beyond --max-num-seqs {max_num_seqs}")


def with_context_axis(config: dict[str, Any], schedules: Sequence[tuple[int, int, Schedule]]) -> dict[str, Any]:
    """The proposed form of vLLM's configuration, entries [first, last, first context, last context, K]."""
    entries = [[lo, hi, first, last, k] for first, last, each in schedules for lo, hi, k in each.rows]
    most = max(1, *(entry[-1] for entry in entries))
    return config | {"num_speculative_tokens": most, KEY: sorted(entries)}


def sglang_config(rows: Sequence[Row]) -> dict[str, Any]:
    """The file of --speculative-adaptive-config: every range of batch sizes has the one candidate it is to use."""
    return {str(first): {"candidate_steps": [k]} for first, _, k in rows}


def sglang_arguments(rows: Sequence[Row], profile: Profile, file: str = "adaptive.json") -> list[str]:
    """Arguments of launch_server; K drafts are verified with one token more."""
    most = max(1, *(row[2] for row in rows))
    arguments = ["--speculative-algorithm", SGLANG_ALGORITHMS.get(profile.draft_kind, "EAGLE")]
    if profile.draft_kind != "ngram":
        arguments += ["--speculative-draft-model-path", profile.draft_model.huggingface_id]
    arguments += ["--speculative-num-steps", str(most), "--speculative-eagle-topk", "1"]
    arguments += ["--speculative-num-draft-tokens", str(most + 1)]
    return [*arguments, "--speculative-adaptive", "--speculative-adaptive-config", file]


def policy_of(engine: Engine, rows: Sequence[Row], profile: Profile) -> str:
    """The policy that simulates what the engine would do with its configuration."""
    if engine == "vllm":
        return f"batch-table:table={json.dumps(vllm_config(rows, profile), separators=(',', ':'))}"
    return f"sglang-adaptive:config={json.dumps(sglang_config(rows), separators=(',', ':'))}"


def notes(engine: Engine, profile: Profile, num_replicas: int) -> list[str]:
    """What the engine's documentation says about such a configuration."""
    said = []
    if engine == "vllm":
        if profile.draft_kind not in VLLM_METHODS:
            said.append(f"name the method yourself: vLLM has several for {profile.draft_kind} drafts")
        elif profile.draft_kind != "eagle":
            said.append("vLLM has tested dynamic K with EAGLE, EAGLE-3 and DFlash drafts; others may not work")
        if num_replicas > 1:
            said.append("one vLLM per replica: with --data-parallel-size above 1 vLLM falls back to the largest K")
    elif profile.draft_kind != "eagle":
        said.append(
            "SGLang documents adaptive steps for EAGLE drafts only; elsewhere it may keep the largest K throughout"
        )
    return said
