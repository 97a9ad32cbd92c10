"""Where acceptance comes from: a recorded bank, by name or directory, `iid:A`, `positions:A,B,...` or `regimes`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.replay import bundled
from sim.replay.profile import Profile
from sim.replay.windows import SIGNALS, Table, Windows, load
from traces.errors import InputError

DEPTH = 20
"""K of the synthetic sources."""

SOURCES = ("iid:A", "positions:A,B,...", "regimes[:seed=N]", "DIR")


def acceptance_source(spec: str) -> Windows:
    """Windows from a spec on the command line. Raises InputError for one that means nothing."""
    name, _, options = spec.partition(":")
    if name == "iid":
        return iid(_probability(options, spec))
    if name == "positions":
        return positions([_probability(text, spec) for text in options.split(",")])
    if name == "regimes":
        seed = options.removeprefix("seed=") or "0"
        if not seed.isdigit():
            raise InputError(f"acceptance {spec!r}: expected regimes or regimes:seed=N")
        return regimes(int(seed))
    if spec in bundled.names():
        return bundled.load(spec)
    if Path(spec).exists():
        return recorded(Path(spec))
    known = ", ".join((*bundled.names(), *SOURCES[:-1]))
    raise InputError(f"unknown acceptance {spec!r}: neither a directory nor one of {known}")


def recorded(directory: Path) -> Windows:
    """Windows in a directory; what calibrate wrote beside them names the pair and the temperature."""
    windows = load(directory)
    with suppress(InputError):  # windows alone, or a profile that is not asked for
        windows = replace(windows, pair=Profile.load(directory).pair)
    with suppress(OSError, ValueError, LookupError, TypeError):
        checked = json.loads((directory / "reconciliation.json").read_text(encoding="utf-8"))
        windows = replace(windows, temperature=float(checked["temperature"]))
    return windows


def _probability(text: str, spec: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"acceptance {spec!r}: {text!r} is no number; expected one of {', '.join(SOURCES)}") from None
    if not 0 <= value <= 1:
        raise InputError(f"acceptance {spec!r}: {text} is no probability, expected 0 to 1")
    return value


def iid(rate: float) -> Windows:
    """Every draft token is accepted with the same chance, independent of all others; the signals are constants."""
    return _one_row(f"iid:{rate:g}", np.full(DEPTH, rate))


def positions(rates: list[float]) -> Windows:
    """Depth d is accepted with chance rates[d], given that the tokens before it were; the last rate holds beyond."""
    accept = np.array([*rates, *[rates[-1]] * DEPTH][: max(DEPTH, len(rates))])
    return _one_row("positions:" + ",".join(f"{rate:g}" for rate in rates), accept)


def _one_row(name: str, accept: NDArray[np.float64]) -> Windows:
    """One window that every step of every request sees. Its signals follow from the rates alone (see `_signals`)."""
    row = accept[None, :].astype(np.float32)
    silence = np.zeros(row.shape)
    tables = _signals(row.astype(np.float64), silence, silence)
    note = "signals are constants of the rates: rules that look at entropy or divergence see nothing else"
    return Windows(name, "synthetic", row, tables, tables, notes=(note,))


STABLE, UNSTABLE = 0, 1
REGIME_MEAN = (0.90, 0.55)
"""Mean acceptance in a stable and in an unstable stretch [O]."""
REGIME_SPREAD = 6.0
"""Concentration of the beta law of acceptance within a regime [O]."""
REGIME_LEAVE = (1 / 40, 1 / 20)
"""Chance per token to leave the regime: stretches of 40 and 20 tokens in the mean [O]."""
REGIME_OFF = 0.9
"""After a rejection both models go on from the same unwanted token: their mean agreement falls to this share [O]."""
REGIME_ROWS = 32768
SCATTER = {"kld": 1.0, "entropy": 0.7}
"""Log-normal scatter of the signals around what acceptance implies. Without it a signal would tell more than real ones
do: with five drafts a step its acceptance correlates with their mean entropy by -0.58 and with their mean KLD by
-0.46; DSDE reports -0.34 and -0.16 at T = 0 for the default pair [O]."""


def regimes(seed: int = 0) -> Windows:
    """A two-state Markov source: stable and unstable stretches in which acceptance, entropy, KLD and JSD move together.

    Synthetic [O]: its parameters are chosen, not measured. Stationary mean acceptance 0.783 = (2 * 0.90 + 0.55) / 3.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0x5265])))
    mean = np.array(REGIME_MEAN)[_stretches(rng, REGIME_ROWS)]
    beta = rng.beta(mean * REGIME_SPREAD, (1 - mean) * REGIME_SPREAD)
    on = _signals(beta, rng.normal(size=REGIME_ROWS), rng.normal(size=REGIME_ROWS))
    # a rejection stays in its regime: own draws for each rejection and each proposal after it
    shape, lost = (REGIME_ROWS, DEPTH), mean[:, None] * REGIME_OFF
    beta_off = rng.beta(lost * REGIME_SPREAD, (1 - lost) * REGIME_SPREAD, size=shape)
    off = _signals(beta_off, rng.normal(size=shape), rng.normal(size=shape))
    return Windows(
        "regimes" + (f":seed={seed}" if seed else ""),
        "synthetic",
        _sliding(beta.astype(np.float32)),
        {name: _sliding(values) for name, values in on.items()},
        off,
        notes=("acceptance is a two-state Markov source; its parameters are chosen, not measured",),
    )


def _stretches(rng: np.random.Generator, rows: int) -> NDArray[np.int64]:
    """Alternating geometric stretches of the two regimes, int64[rows]."""
    pairs = 2 * rows // int(1 / REGIME_LEAVE[0] + 1 / REGIME_LEAVE[1]) + 64
    stretch = np.stack([rng.geometric(leave, size=pairs) for leave in REGIME_LEAVE], axis=1).ravel()
    return np.repeat(np.tile([STABLE, UNSTABLE], pairs), stretch)[:rows]


def _signals(
    beta: NDArray[np.float64], kld_noise: NDArray[np.float64], entropy_noise: NDArray[np.float64]
) -> dict[str, Table]:
    """Signals that fit an acceptance chance beta = 1 - TV(p, q), with standard normal noise scaled by SCATTER [O].

    The divergence goes with the square of the total variation, as Pinsker's bound KLD >= 2 TV^2 does; the distance is
    bounded by sqrt(ln 2); the entropies fall as beta rises; a token that is accepted with chance min(1, p / q) = beta
    has p = beta q.
    """
    variation = 1 - beta
    kld = 3.0 * np.square(variation) * np.exp(SCATTER["kld"] * kld_noise)
    jsd = np.sqrt(np.log(2) * -np.expm1(-0.5 * kld))
    draft_entropy = 0.1 + 2.0 * variation * np.exp(SCATTER["entropy"] * entropy_noise)
    draft_prob = np.exp(-0.7 * draft_entropy)
    values = (draft_entropy, draft_prob, kld, jsd, 0.8 * draft_entropy, beta * draft_prob)
    return {name: np.asarray(value, np.float32) for name, value in zip(SIGNALS, values, strict=True)}


def _sliding(values: NDArray[np.float32]) -> Table:
    """float32[R] of a circular trajectory -> its windows float32[R, K], as a view: no copy per depth."""
    around = np.concatenate([values, values[: DEPTH - 1]])
    return np.lib.stride_tricks.sliding_window_view(around, DEPTH)
