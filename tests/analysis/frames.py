"""Results frames with figures chosen by hand, and runs small enough to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from sim.policies import default_cap, default_rule
from sim.replay.windows import Windows
from traces.errors import InputError

TWELVE = (
    *("none", "fixed:k=1", "fixed:k=2", "fixed:k=4", "fixed:k=8", "dsde", "oracle:goodput", "goodput", "bass"),
    *("priced", "nightjar", "sglang-adaptive"),
)
DEPTH = "spec_decode_per_position"


def row(policy: str, rate: str = "4", seed: int = 0, tpot: float = 10.0, **others: Any) -> dict[str, Any]:
    """One run: a drafting policy accepts 80 % of first and half of second tokens, and wastes and waits a little."""
    drafts = policy != "none"
    known = {
        "error": None,
        "trace": "sharegpt",
        "policy": policy,
        "cap": _own(default_cap, policy, "none"),
        "acceptance_rule": _own(default_rule, policy, "lossless"),
        "profile": "h100-llama-3.1-8b-tp1",
        "acceptance": "iid:0.8",
        "acceptance_rate": None,
        "request_rate": rate,
        "seed": seed,
        "num_prompts": 10,
        "max_concurrency": None,
        "goodput": [],
        "request_rate_rps": float(rate) if rate[0].isdigit() or rate == "inf" else np.nan,
        "mean_tpot_ms": tpot,
        "p99_ttft_ms": 100.0,
        "output_throughput": 1000.0 / tpot,
        "slo_attainment": np.nan,
        "lossless": True,
        "draft_time_s": 1.0 * drafts,
        "verify_time_s": 2.0,
        "prefill_time_s": 0.5,
        "host_time_s": 0.5,
        "draft_idle_share": 0.25 if drafts else None,
        "wasted_verify_share": 0.5 if drafts else None,
        f"{DEPTH}_acceptance_rates": [0.8, 0.4] if drafts else [],
        f"{DEPTH}_conditional_acceptance_rates": [0.8, 0.5] if drafts else [],
        "spec_decode_num_drafts": 100.0 * drafts,
    }
    return known | others


def _own(default: Callable[[str], str], policy: str, other: str) -> str:
    try:
        return default(policy)
    except InputError:
        return other


def frame(
    policies: Iterable[str] = ("none", "dsde"),
    rates: Iterable[str] = ("4",),
    seeds: Iterable[int] = (0,),
    **others: Any,
) -> pd.DataFrame:
    """The product; policy number i needs 10 + i ms per token at the first rate, one more at each further."""
    rows = [
        row(policy, rate, seed, tpot=10.0 + i + j + 0.1 * seed, **others)
        for i, policy in enumerate(policies)
        for j, rate in enumerate(rates)
        for seed in seeds
    ]
    return pd.DataFrame(rows)


def steps(number: int = 10, k: int = 4) -> pd.DataFrame:
    """Steps of 10 ms one after the other: 4 ms draft, 5 ms verify, 1 ms host; two sequences draft k and k - 2."""
    at = 0.01 * np.arange(number)
    columns = {"replica": 0, "start_s": at, "end_s": at + 0.01, "draft_s": 0.004, "verify_s": 0.005, "prefill_s": 0.0}
    columns |= {"host_s": 0.001, "num_decode": 2, "max_draft": k, "drafted": 2 * k - 2, "accepted": 2}
    return pd.DataFrame(columns)


def requests() -> pd.DataFrame:
    """Two requests of one task, one of another.

    code: 10 steps of k = 2, of which 2 accepted none, 3 one, 5 both; and 4 steps of k = 1, of which 1 none, 3 one.
    """
    histograms: list[dict[str, list[int]]] = [{"2": [2, 3, 0]}, {"2": [0, 0, 5], "1": [1, 3]}, {"1": [0, 2]}]
    return pd.DataFrame({"task": ["code", "code", "prose"], "acceptance_histogram_by_draft_length": histograms})


def windows(rows: int = 120) -> Windows:
    """Two tasks of one text each; entropy rises along each; accepted is the first half of it and not the second."""
    accept = np.tile((np.arange(rows // 2) < rows // 4).astype(np.float32), 2)[:, None].repeat(4, axis=1)
    entropy = np.tile(np.arange(rows // 2, dtype=np.float32), 2)[:, None].repeat(4, axis=1)
    on = {"draft_entropy": entropy, "kld": entropy / 100}
    return Windows("by hand", "synthetic", accept, on, start=np.array([0, rows // 2]), task=("code", "prose"))
