"""Small files of the layouts that vLLM 0.32 writes, for servers whose law is known."""

from __future__ import annotations

import json
from pathlib import Path

POOL = "(EngineCore pid=7) INFO 11-30 19:16:00 [kv_cache_utils.py:2327] CPU KV cache size: 4,096 tokens, Maximum\n"
BANNER = "(APIServer pid=7) INFO 11-30 19:15:44 [api_utils.py:347]   version 0.32.0\n"


def step_line(
    index: int, contexts: int, context_tokens: int, generations: int, generation_tokens: int, ms: float, engine: int = 0
) -> str:
    """One line of --enable-logging-iteration-details."""
    return (
        f"(APIServer pid=7) INFO 11-30 19:16:11 [loggers.py:199] Engine {engine:03}: Iteration({index}): {contexts} "
        f"context requests, {context_tokens} context tokens, {generations} generation requests, {generation_tokens} "
        f"generation tokens, iteration elapsed time: {ms:.2f} ms, CPU KV cache usage: 2.5%\n"
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def bench_file(path: Path, requests: list[dict], **others: object) -> Path:
    """A result of vllm bench serve. A request: prompt, output, start, ttft, gaps (itl)."""
    result: dict[str, object] = {
        "model_id": "smol",
        "num_prompts": len(requests),
        "max_concurrency": None,
        "completed": sum(not each.get("error") for each in requests),
        "duration": max(each["start"] + each["ttft"] + sum(each["gaps"]) for each in requests),
        "input_lens": [each["prompt"] for each in requests],
        "output_lens": [each["output"] for each in requests],
        "start_times": [each["start"] for each in requests],
        "ttfts": [each["ttft"] for each in requests],
        "itls": [each["gaps"] for each in requests],
        "latencies": [each["ttft"] + sum(each["gaps"]) for each in requests],
        "queue_times": [0.0 for _ in requests],
        "errors": [each.get("error", "") for each in requests],
    }
    return write(path, json.dumps(result | others))


def scrape_text(drafts: int = 100, accepted_at: tuple[int, ...] = (80, 40), block_size: int = 16) -> str:
    """Of /metrics, for drafts of as many tokens as there are positions."""
    label = 'engine="0",model_name="smol"'
    lines = [
        f'vllm:cache_config_info{{block_size="{block_size}",enable_prefix_caching="False",engine="0",'
        'kv_cache_memory_bytes="4096000",kv_cache_size_tokens="4096"}} 1.0'.replace("}}", "}"),
        f"vllm:spec_decode_num_drafts_total{{{label}}} {drafts}.0",
        f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {drafts * len(accepted_at)}.0",
        f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {sum(accepted_at)}.0",
    ]
    for position, count in enumerate(accepted_at):
        lines.append(
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{label},position="{position}"}} {float(count)}'
        )
    return "\n".join(lines) + "\n"


def response_text(drafted: list[int], accepted: list[int], tokens: int) -> str:
    told = {"per_step_drafted": drafted, "per_step_accepted": accepted}
    return json.dumps({"usage": {"completion_tokens": tokens}, "metrics": {"speculative_decoding": told}})


def closed_loop(path: Path) -> Path:
    """Two requests that arrive together at an idle server: 50 ms a pass, 1 ms a token, 4 ms a sequence; no speculation.

    Step 0 prefills 20 tokens (50 + 20 + 4 = 74 ms), as the second request comes a moment after the first. Step 1
    prefills 40 and decodes one (50 + 41 + 8 = 99 ms). Steps 2, 3 decode two (50 + 2 + 8 = 60), step 4 one (55 ms).
    """
    s = [0.074, 0.099, 0.060, 0.060, 0.055]
    first = {"prompt": 20, "output": 4, "start": 10.0, "ttft": s[0], "gaps": s[1:4]}
    second = {"prompt": 40, "output": 4, "start": 10.0001, "ttft": s[0] + s[1] - 1e-4, "gaps": s[2:5]}
    return bench_file(path, [first, second], duration=sum(s))


def law_ms(contexts: int, context_tokens: int, generations: int, generation_tokens: int) -> float:
    """A target whose passes take 50 ms, 2 ms a token and 1 ms a sequence."""
    return 50 + 2 * (context_tokens + generation_tokens) + contexts + generations


def plain_log(path: Path) -> Path:
    """300 steps of that target: decodes of 1 to 8 requests, and every fifth step a prompt of 10 to 60 tokens beside."""
    lines = [BANNER, POOL]
    for index in range(300):
        generations, prompt = 1 + index % 8, 10 + index % 51
        shape = (1, prompt, generations, generations) if index % 5 == 0 else (0, 0, generations, generations)
        lines.append(step_line(index, *shape, law_ms(*shape)))
    return write(path, "".join(lines))


def drafting_log(path: Path, k: int = 3) -> Path:
    """The same target with a draft model of 4 ms a pass and 0.5 ms a token: k passes, the first with the prompts."""
    lines = [BANNER, POOL]
    for index in range(200):
        generations, prompt = 1 + index % 8, 10 + index % 51
        shape = (int(index % 5 == 0), prompt * (index % 5 == 0), generations, generations * (1 + k))
        draft_ms = 4 * k + 0.5 * (k * generations + shape[1])
        lines.append(step_line(index, *shape, law_ms(*shape) + draft_ms))
    return write(path, "".join(lines))
