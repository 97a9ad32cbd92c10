"""Engine steps to costs: the target's from steps whose passes are its own, a draft's from what is left of the others.

A step without speculation is one pass of the target over its new tokens; a step that verifies drafts is the same pass
over more tokens, so the target's cost carries over, and what such a step takes longer is k passes of the draft model.
A look-up drafts on the host for next to nothing: its steps are the target's alone.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from calibrate.fit import Points, rounded
from calibrate.vllm.bench import BenchRun
from calibrate.vllm.log import EngineSteps, ServerLog
from sim.replay.cost import ForwardCost
from traces.errors import InputError

SAME_TIME_S = 5.0
"""Between the log's last step and the result that is written after it."""


def points(steps: EngineSteps) -> Points:
    """The target's pass of each step. Requests of a step are taken as equally long, prompts as whole."""
    prompt = steps.context_tokens / np.maximum(steps.contexts, 1)
    query = steps.generation_tokens / np.maximum(steps.generations, 1)
    kv = np.where(np.isfinite(steps.kv_tokens), np.maximum(steps.kv_tokens, steps.new_tokens), steps.new_tokens)
    cached = np.maximum(kv - steps.context_tokens, steps.generation_tokens)
    return Points(
        phase=np.where(steps.contexts > 0, np.where(steps.generations > 0, "mixed", "prefill"), "decode"),
        new_tokens=steps.new_tokens,
        kv_tokens=kv,
        query_key_pairs=query * cached + steps.contexts * prompt * (prompt + 1) / 2,
        num_seqs=steps.num_seqs,
        seconds=steps.seconds,
    )


def predicted(steps: EngineSteps, target: ForwardCost, draft: ForwardCost | None = None) -> np.ndarray:
    """Seconds that the costs say each step takes, without the host."""
    p = points(steps)
    seconds = np.asarray(target.seconds(p.new_tokens, p.kv_tokens, p.query_key_pairs, p.num_seqs))
    if draft is not None:
        passes, tokens, seqs = _draft_sums(steps).T
        affine = draft.linear.y[0], draft.linear.y[1] - draft.linear.y[0], draft.per_seq_s
        seconds = seconds + affine[0] * passes + affine[1] * tokens + affine[2] * seqs
    return seconds


def fit_draft(steps: EngineSteps, target: ForwardCost) -> ForwardCost:
    """An affine cost of one draft pass: non-negative least squares of what the target's pass leaves over."""
    weight = 1 / steps.seconds
    left = (steps.seconds - predicted(steps, target)) * weight
    solution, _ = nnls(_draft_sums(steps) * weight[:, None], left)
    if not solution.any():
        raise InputError(
            "the steps that speculate take no longer than the target alone would: no cost of a draft can be told apart "
            "(logs of another machine, or a look-up: --draft-kind ngram)"
        )
    return rounded(ForwardCost.affine(solution[0], solution[1], per_seq_s=solution[2]))


def _draft_sums(steps: EngineSteps) -> np.ndarray:
    """Passes, tokens and sequences of the draft model in each step, [N, 3], as sim.replay.drafting counts them.

    k passes over the decoding requests, the first with the step's prompt chunks. (vLLM's first pass also takes the
    tokens that were verified; the price of a token takes that in.)
    """
    k = np.ceil(steps.drafts_per_request)
    passes = np.maximum(k, steps.contexts > 0)
    tokens = k * steps.generations + steps.context_tokens
    return np.stack([passes, tokens, k * steps.generations + steps.contexts], axis=1)


def stretch(log: ServerLog, run: BenchRun) -> slice | None:
    """The steps of a log that served a run: as many prompts and decode steps, from a step with a prompt on.

    Runs of equal requests look alike: the log's last step must be as old as the result, where both say when that was,
    and no run is shorter than its steps. Of several candidates, the one that leaves the host the least.
    """
    steps = log.steps
    contexts, generations = (np.cumsum(np.append(0, column)) for column in (steps.contexts, steps.generations))
    elapsed = np.cumsum(np.append(0, steps.seconds))
    wanted = len(run), int(run.chunks.sum())
    found = []
    for first in np.flatnonzero((steps.generations == 0) & (steps.contexts > 0)):
        same = (contexts - contexts[first] == wanted[0]) & (generations - generations[first] == wanted[1])
        for end in np.flatnonzero(same[first + 1 :]) + first + 1:
            host_s = _spent(run) - float(elapsed[end] - elapsed[first])
            age_s = abs(float(log.clock_s[end - 1]) - run.written_s) if run.written_s is not None else 0.0
            if host_s > -0.01 * _spent(run) and not age_s > SAME_TIME_S:  # an age that is not known is no objection
                found.append((host_s, int(first), int(end)))
    return slice(*min(found)[1:]) if found else None


def _spent(run: BenchRun) -> float:
    """Seconds from the first request to the last token."""
    return float(run.timings.chunk_s.max() - run.timings.start_s.min())


def host_seconds(log: ServerLog, run: BenchRun) -> tuple[float, slice] | None:
    """Seconds per step that no step accounts for, from a run and the log of its server, and where it lies there.

    Holds for a run that kept the engine busy: pauses would count as host time.
    """
    where = stretch(log, run)
    if where is None:
        return None
    seconds = log.steps.seconds[where]
    return max((_spent(run) - float(seconds.sum())) / len(seconds), 0.0), where
