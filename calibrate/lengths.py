"""Steps and tokens a step: what windows predict for an engine that drafts k tokens, against what a live run did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from calibrate.bank import Trajectory
from calibrate.loop import LiveText

CONFIDENCE = 0.997
"""Of the interval within which sampled runs must agree: one honest calibration in 300 falls outside."""


def expected_steps(accept: NDArray[np.float32], k: int) -> float:
    """Expected steps of an engine that drafts k tokens in each to emit one token for each row of `accept` [R, K].

    Exact: chances are added up, nothing is drawn. The last step stops at the end of the text.
    """
    rows = len(accept)
    reach = np.hstack([np.ones((rows, 1)), np.cumprod(accept[:, :k].astype(np.float64), axis=1), np.zeros((rows, 1))])
    exactly = reach[:, :-1] - reach[:, 1:]  # accepted 0 .. k
    visited = np.zeros(rows + k + 1)
    visited[0] = 1.0
    for row in range(rows):
        visited[row + 1 : row + 2 + k] += visited[row] * exactly[row]
    return float(visited[:rows].sum())


def greedy_steps(accept: NDArray[np.float32], k: int) -> list[int]:
    """Tokens that each step of k drafts emits along a greedy text; they add up to the rows of `accept`."""
    row, found = 0, []
    while row < len(accept):
        run = int(np.append(accept[row, :k] > 0, False).argmin())
        found.append(min(run + 1, len(accept) - row))
        row += found[-1]
    return found


def compare_lengths(trajectories: Sequence[Trajectory], live: Sequence[LiveText], k: int) -> tuple[float, float, float]:
    """Mean tokens a step: of the live texts, of the windows, and half the width of the interval of their difference.

    Ratios of sums over prompts, paired by prompt, linearised (delta method), with Student's t.
    """
    tokens = np.array([[text.decoded, len(t.accept)] for text, t in zip(live, trajectories, strict=True)], float)
    steps = np.array(
        [[len(text.steps), expected_steps(t.accept, k)] for text, t in zip(live, trajectories, strict=True)]
    )
    mean = tokens.sum(axis=0) / np.maximum(steps.sum(axis=0), 1)
    off = (tokens - mean * steps) / np.maximum(steps.sum(axis=0), 1)
    count = len(tokens)
    if count < 2:
        return float(mean[0]), float(mean[1]), np.inf
    error = np.sqrt(((off[:, 0] - off[:, 1]) ** 2).sum() * count / (count - 1))
    return float(mean[0]), float(mean[1]), float(error * stats.t.ppf((1 + CONFIDENCE) / 2, count - 1))


def first_difference(
    expected_text: list[int], expected_steps: list[int], text: list[int], steps: list[int]
) -> int | None:
    """The first step in which two runs emit something else; 0 also if the first token differs, None if nothing does."""
    at = 1
    if text[:1] != expected_text[:1]:
        return 0
    for index in range(max(len(steps), len(expected_steps))):
        wanted, found = (run[index] if index < len(run) else 0 for run in (expected_steps, steps))
        if wanted != found or text[at : at + found] != expected_text[at : at + wanted]:
            return index
        at += found
    return None
