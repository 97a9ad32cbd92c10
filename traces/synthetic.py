"""The `random` trace: lengths drawn uniformly around a mean, as vLLM's random dataset does."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError
from traces.randomness import Stream, generator

RANDOM = "random"
DEFAULT_INPUT_LEN, DEFAULT_OUTPUT_LEN = 1024, 128  # vLLM's


def random_lengths(
    n: int, input_len: int | None, output_len: int | None, range_ratio: float | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Prompt and output tokens of `n` requests, and a note on them. shape: [n] each.

    Whole numbers, uniform in [floor(len (1 - r)), ceil(len (1 + r))] with both ends, at least 1; r = 0 gives every
    request the same lengths. Raises `InputError` unless 0 <= r < 1.
    """
    ratio = 0.0 if range_ratio is None else range_ratio
    if not 0 <= ratio < 1:
        raise InputError(f"--range-ratio {ratio:g}: expected a number of at least 0 and below 1")
    prompt = DEFAULT_INPUT_LEN if input_len is None else input_len
    output = DEFAULT_OUTPUT_LEN if output_len is None else output_len
    columns = [
        generator(seed, stream).integers(*_bounds(mean, ratio), size=n, endpoint=True)
        for stream, mean in ((Stream.PROMPT_TOKENS, prompt), (Stream.OUTPUT_TOKENS, output))
    ]
    note = f"Lengths uniform around {prompt} prompt and {output} output tokens, range ratio {ratio:g}."
    return columns[0], columns[1], note


def _bounds(mean: int, ratio: float) -> tuple[int, int]:
    # rounded to 9 digits first: 10 * (1 + 0.1) is 11.000000000000002 and must not become 12
    return max(1, math.floor(round(mean * (1 - ratio), 9))), math.ceil(round(mean * (1 + ratio), 9))
