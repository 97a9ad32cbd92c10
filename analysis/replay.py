"""Runs of a sweep once more, for what its table does not hold: the same settings give the same run to the last byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_type_hints

import numpy as np
import pandas as pd

from analysis.findings import PLAIN, Comparison
from analysis.frame import SETTINGS
from sim.config import SimConfig
from sim.results import Results
from sim.simulate import load_inputs, simulate

MOST = 5
"""Policies that are run again."""
_HINTS = get_type_hints(SimConfig)


def config_of(row: pd.Series) -> SimConfig:
    """The settings of a run. An undefined value is the default."""
    values: dict[str, Any] = {}
    for name in SETTINGS:
        value = row.get(name)
        if isinstance(value, list | tuple | np.ndarray):
            values[name] = tuple(value)
        elif value is not None and not pd.isna(value):
            whole = _HINTS[name] in (int, int | None)
            values[name] = int(value) if whole else value.item() if isinstance(value, np.generic) else value
    return SimConfig(**values)


def replay(c: Comparison) -> tuple[str, dict[str, Results]]:
    """The middle rate, and by series the runs of its first seed: the fastest policies and plain decoding.

    Raises InputError where a trace, a profile or acceptance windows are no longer there.
    """
    rate = c.rates.settings[len(c.rates.settings) // 2]
    means = {series: c.mean(series, rate) for series in c.series}
    known = [series for series in c.contenders if np.isfinite(means[series])]
    chosen = sorted(known, key=lambda series: means[series])[:MOST]
    if PLAIN in known and PLAIN not in chosen:
        chosen[-1] = PLAIN
    configs = {series: config_of(c.cells[series, rate].sort_values("seed").iloc[0]) for series in chosen}
    shared = {replace(config, policy="none", cap=None, acceptance_rule=None) for config in configs.values()}
    inputs = load_inputs(next(iter(configs.values()))) if len(shared) == 1 else None
    return rate, {series: simulate(config, inputs) for series, config in configs.items()}
