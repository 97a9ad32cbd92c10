"""The smallest file of each format: the same two requests, 100/20 tokens at 0 s and 300/7 tokens at 2.5 s.

ShareGPT and custom JSONL hold text instead, and no times: 9 bytes are 2 estimated tokens, 18 bytes are 4.
"""

from __future__ import annotations

import json
from pathlib import Path

BENCH = {"request_throughput": 1.0, "input_lens": [100, 300], "output_lens": [20, 7], "start_times": [50.0, 52.5]}
SHAREGPT = [
    {"id": "a", "conversations": [{"from": "human", "value": "p" * 9}, {"from": "gpt", "value": "a" * 18}]},
    {"id": "b", "conversations": [{"from": "human", "value": "p" * 18}, {"from": "gpt", "value": "a" * 9}]},
]

TEXTS = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,100,20\n2023-11-16 18:15:49.1805900,300,7\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,100,20,120,Conversation log\n7.5,GPT-4,300,7,307,API log\n",
    "lengths": "arrival_s,prompt_tokens,output_tokens\n0.0,100,20\n2.5,300,7\n",
    "mooncake": '{"timestamp": 0, "input_length": 100, "output_length": 20, "hash_ids": [0]}\n'
    '{"timestamp": 2500, "input_length": 300, "output_length": 7, "hash_ids": [0]}\n',
    "vllm-timed": '{"timestamp": 0.0, "input_length": 100, "output_length": 20}\n'
    '{"timestamp": 2.5, "input_length": 300, "output_length": 7}\n',
    "vllm-bench": json.dumps(BENCH),
    "vllm-custom": '{"prompt": "ppppppppp", "output_tokens": 20}\n'
    '{"prompt": "pppppppppppppppppp", "output_tokens": 7}\n',
    "sharegpt": json.dumps(SHAREGPT),
}
TIMED = ("azure", "burstgpt", "lengths", "mooncake", "vllm-timed", "vllm-bench")
JSON_LINES = ("mooncake", "vllm-timed", "vllm-custom")
CSV = ("azure", "burstgpt", "lengths")


def write(directory: Path, text: str, name: str = "trace.txt", encoding: str = "utf-8") -> Path:
    """A file with exactly these characters: no translation of line ends."""
    path = directory / name
    path.write_bytes(text.encode(encoding))
    return path
