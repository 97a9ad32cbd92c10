"""Real traces through the default profile: every request ends, and the books balance."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.config import SimConfig
from sim.simulate import simulate

pytestmark = pytest.mark.shared_data


@pytest.mark.parametrize("policy", ["dsde", "fixed:k=4", "none"])
@pytest.mark.parametrize(
    ("file", "rows", "options"),
    [
        ("azure2023_code.csv.gz", 8819, {"request_rate": "trace"}),
        ("burstgpt_head42.csv", 38, {"request_rate": "trace"}),  # 42 rows, 4 of them failed
        ("azure2023_conv.csv.gz", 3000, {"request_rate": "trace", "num_prompts": 3000}),
        ("mooncake_conversation.jsonl.gz", 500, {"request_rate": "trace", "num_prompts": 500, "num_replicas": 8}),
        ("mooncake_conversation.jsonl.gz", 500, {"num_prompts": 500, "enable_prefix_caching": True}),
        ("sharegpt8k_llama2.csv.gz", 2000, {"request_rate": "8", "num_prompts": 2000}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_request_ends(shared_data: Path, policy: str, file: str, rows: int, options: dict[str, object]) -> None:
    run = simulate(SimConfig(trace=str(shared_data / "traces" / file), policy=policy, **options))  # type: ignore[arg-type]
    books = run.metrics["conservation"]
    assert books["injected"] == books["completed"] + books["rejected"] == rows
    assert run.metrics["completed"] + run.metrics["failed"] == rows
