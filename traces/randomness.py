"""Random numbers by purpose: each stream depends on the seed and on nothing else that is drawn."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from traces.errors import InputError


class Stream(IntEnum):
    """What a stream is for. The numbers are part of every reproducible result: never reuse or renumber one."""

    ARRIVALS = 1
    PROMPT_TOKENS = 2
    OUTPUT_TOKENS = 3
    JITTER = 4


def generator(seed: int, stream: Stream) -> np.random.Generator:
    """The generator of one purpose under one seed. Raises `InputError` for a negative seed."""
    if seed < 0:
        raise InputError(f"--seed {seed}: expected a whole number of at least 0")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(stream)])))
