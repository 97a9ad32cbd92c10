"""Latency against load for a few policies: where speculation starts to hurt. Makes the figure at the head of README.

python benchmarks/crossover.py --output analysis/figures/crossover.svg
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from sim.config import SimConfig
from sim.simulate import load_inputs, simulate

POLICIES = (
    ("none", "none", "#000000", "o"),
    ("fixed:k=4", "none", "#E69F00", "s"),
    ("fixed:k=1", "none", "#009E73", "v"),
    ("dsde", "none", "#56B4E9", "^"),
    ("dsde", "mean", "#0072B2", "D"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="h100-llama-3.1-8b-tp1")
    parser.add_argument("--acceptance", default="smollm2-eagle")
    parser.add_argument("--acceptance-rate", type=float)
    parser.add_argument("--trace", default="sharegpt")
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--rates", type=float, nargs="+", default=[1, 2, 4, 8, 12, 16, 20, 24])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    base = SimConfig(
        trace=options.trace,
        profile=options.profile,
        num_prompts=options.num_prompts,
        acceptance=options.acceptance,
        acceptance_rate=options.acceptance_rate,
    )
    means = np.zeros((len(POLICIES), len(options.rates)))
    for column, rate in enumerate(options.rates):
        at_rate = replace(base, request_rate=str(rate))
        inputs = load_inputs(at_rate)
        for row, (policy, cap, _, _) in enumerate(POLICIES):
            run = simulate(replace(at_rate, policy=policy, cap=cap), inputs)
            means[row, column] = run.metrics["mean_tpot_ms"]
            print(f"{rate:6g} req/s  {policy:<15} cap {cap:<5} TPOT {means[row, column]:7.2f} ms", flush=True)
    windows = inputs.windows
    tilted = f" tilted to {options.acceptance_rate:g}" if options.acceptance_rate is not None else ""
    about = (
        f"{options.trace} lengths (sampled), {options.profile} (measured kernels), "
        f"acceptance of {windows.name}{tilted} ({windows.kind}, mean {windows.mean_acceptance:.2f})"
    )
    with rc_context({"svg.hashsalt": "draftlab", "font.size": 10}):
        metadata = {"Date": None} if options.output.suffix == ".svg" else None
        draw(options.rates, means, about).savefig(options.output, metadata=metadata)


def draw(rates: list[float], means: np.ndarray, about: str) -> Figure:
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for (policy, cap, colour, marker), values in zip(POLICIES, means, strict=True):
        label = policy + (" + mean cap" if cap == "mean" else ", no cap" if policy == "dsde" else "")
        axes.plot(rates, values, color=colour, marker=marker, markersize=4, label=label)
    axes.set_xlabel("request rate, requests/s")
    axes.set_ylabel("mean time per output token, ms")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.set_title(about, fontsize=8, loc="left", color="#555555")
    return figure


if __name__ == "__main__":
    main()
