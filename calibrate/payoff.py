"""What a fitted cost model says of speculation: passes of both models, and what k tokens must bring to pay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sim.replay.cost import ForwardCost
from sim.replay.profile import Profile


def even_seconds(cost: ForwardCost, num_seqs: Any, query_tokens: Any, context_tokens: Any) -> Any:
    """Seconds of a pass in which every sequence has the same query and the same context."""
    s, q, c = num_seqs, query_tokens, context_tokens
    return cost.seconds(s * q, s * (c + q), s * (q * c + q * (q + 1) / 2), s)


def draft_seconds(profile: Profile, num_seqs: int, k: int, context: int) -> float:
    """Seconds to draft k tokens for each sequence: k passes of one token, or one of k where all are drafted at once.

    Of a lookup (ngram) one pass of one token stands for all: its cost does not grow with k.
    """
    if k == 0:
        return 0.0
    if profile.draft_kind == "parallel":
        return float(even_seconds(profile.draft, num_seqs, k, context))
    passes = 1 if profile.draft_kind == "ngram" else k
    return float(sum(even_seconds(profile.draft, num_seqs, 1, context + i) for i in range(passes)))


def step_seconds(profile: Profile, num_seqs: int, k: int, context: int) -> float:
    """Seconds of an engine step in which every sequence drafts and verifies k tokens; k = 0 is plain decoding."""
    verify = float(even_seconds(profile.target, num_seqs, 1 + k, context))
    return draft_seconds(profile, num_seqs, k, context) + verify + profile.host.seconds(num_seqs)


def passes(profile: Profile, num_seqs: int, queries: Sequence[int], context: int) -> dict[str, Any]:
    """One line of the cost table: a draft token, and target passes over q tokens a sequence, in ms."""
    draft_ms = 1e3 * draft_seconds(profile, num_seqs, 1, context)
    target_ms = {str(q): 1e3 * float(even_seconds(profile.target, num_seqs, q, context)) for q in queries}
    outside = [q for q in queries if profile.target.outside(num_seqs * q, num_seqs * (context + q), num_seqs)]
    return {
        "num_seqs": num_seqs,
        "draft_ms": draft_ms,
        "target_ms": target_ms,
        "draft_to_target": draft_ms / target_ms[str(queries[0])],
        "host_ms": 1e3 * profile.host.seconds(num_seqs),
        "extrapolated_queries": outside,
    }


def speculation(
    profile: Profile, num_seqs: int, depths: Sequence[int], context: int, lengths: Sequence[float] | None
) -> dict[str, Any]:
    """What k pays at a batch size, if every sequence drafts k in every step.

    break_even_length   k -> acceptance length at which speculation costs as much per token as plain decoding
    ceiling             largest speed-up over all k if every draft token were accepted
    speed_up            k -> acceptance length / break_even_length; with best_k, and break_even_k, the largest k that is
                        not slower than plain decoding (0 if none is). None without acceptance
    """
    plain = step_seconds(profile, num_seqs, 0, context)
    needed = {k: step_seconds(profile, num_seqs, k, context) / plain for k in depths}
    row: dict[str, Any] = {
        "num_seqs": num_seqs,
        "break_even_length": {str(k): value for k, value in needed.items()},
        "ceiling": max((k + 1) / value for k, value in needed.items()) if needed else None,
        "speed_up": None,
        "best_k": None,
        "break_even_k": None,
    }
    if lengths:
        gain = {k: lengths[k - 1] / needed[k] for k in depths}
        best = max(gain, key=lambda k: (gain[k], -k))
        row["speed_up"] = {str(k): value for k, value in gain.items()}
        row["best_k"] = best if gain[best] > 1 else 0
        row["break_even_k"] = max((k for k, value in gain.items() if value >= 1), default=0)
    return row
