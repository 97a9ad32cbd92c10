"""Held-out figures of a draft: where its chains meet what the target wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from calibrate.distillation.text import Text
from calibrate.distillation.training import ROWS
from calibrate.distillation.unroll import batch, can_be_drafted, unroll
from calibrate.eagle import EagleDraft

DEPTHS = 4


def by_task(draft: EagleDraft, target: Any, tasks: Sequence[str], texts: Sequence[Text]) -> dict[str, dict[str, Any]]:
    """`figures` of the texts of each task, and of all under "all"."""
    found = {}
    for task in (*dict.fromkeys(tasks), "all"):
        own = [text for text, of in zip(texts, tasks, strict=True) if task in (of, "all") and can_be_drafted(text)]
        if own:
            found[task] = figures(draft, target, own)
    return found


def figures(draft: EagleDraft, target: Any, texts: Sequence[Text]) -> dict[str, Any]:
    """How draft and target agree over all positions that can be drafted, one figure for each depth of a chain.

    match        the draft's likeliest token is the target's: greedy acceptance, given acceptance so far
    acceptance   sum of min(p, q): the acceptance of speculative sampling at temperature 1 (arXiv 2211.17192), along the
                 text, whatever came before
    """
    with torch.no_grad():
        matched, tried = torch.zeros(DEPTHS), torch.zeros(DEPTHS)
        accepted, seen = torch.zeros(DEPTHS), torch.zeros(DEPTHS)
        for first in range(0, len(texts), ROWS):
            given = batch(texts[first : first + ROWS], draft)
            alive = given.drafted.clone()  # chains, by the position they have come to
            for depth, (own, states, (rows, columns)) in enumerate(
                (own, states, places.T) for own, states, places in unroll(draft, given, DEPTHS)
            ):
                p = target.get_output_embeddings()(states.to(target.dtype)).float().softmax(-1)
                q = draft.head(own).softmax(-1)
                if depth:
                    alive = alive.roll(1, 1)
                still = alive[rows, columns]
                match = draft.token_ids[q.argmax(-1)] == p.argmax(-1)
                matched[depth] += float((match & still).sum())
                tried[depth] += float(still.sum())
                accepted[depth] += float(torch.minimum(p[:, draft.token_ids], q).sum())
                seen[depth] += len(rows)
                alive[rows, columns] = match & still
    return {
        "tokens": int(seen[0]),
        "match": _ratios(matched, tried),
        "acceptance": _ratios(accepted, seen),
    }


def _ratios(counts: torch.Tensor, totals: torch.Tensor) -> list[float | None]:
    pairs = zip(counts.tolist(), totals.tolist(), strict=True)
    return [round(count / total, 4) if total else None for count, total in pairs]
