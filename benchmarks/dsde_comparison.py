"""DSDE's claims (arXiv 2509.01083), asked of the simulator: as good as the best fixed length, better than AdaEDL where
acceptance is low, and a straggler cap that pays in large batches.

    python benchmarks/dsde_comparison.py --output dsde.svg

Everyone serves the same requests with the same luck, at most `--concurrency` at a time. AdaEDL comes as published, as
that with the whole batch stopped by any sequence, and as in DSDE's repository. Acceptance is `regimes`, stable and
unstable stretches, tilted to each mean: the signals stay as they are, so that tilted far they tell less than real ones.
The paper ran other hardware and other texts: hold shapes against it, not digits.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from sim.config import SimConfig
from sim.policies import policies
from sim.simulate import load_inputs, simulate
from sim.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, new_figure, save_picture

FIXED = tuple(f"fixed:k={k}" for k in (2, 4, 6, 8, 10))
DSDES_ADAEDL = "adaedl:scope=batch,gamma=0.1,min_spec=6"
"""AdaEDL as DSDE's repository has it: never fewer than six tokens."""
RULES = {"dsde": BLUE, DSDES_ADAEDL: VERMILLION, "adaedl:scope=batch": ORANGE, "adaedl": GREEN, "priced": PURPLE}
PUBLISHED_CAP = "DSDE reports a gain from B = 1 to 64 of 11.2x without and 12.2x with the cap at T = 0"

Latencies = dict[float, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default=SimConfig.profile)
    parser.add_argument("--trace", default="sharegpt")
    parser.add_argument("--acceptance", default="regimes")
    parser.add_argument("--num-prompts", type=int, default=128)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--acceptance-rates", type=float, nargs="+", default=[0.3, 0.5, 0.65, 0.8, 0.9])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    base = SimConfig(
        trace=options.trace,
        profile=options.profile,
        acceptance=options.acceptance,
        num_prompts=options.num_prompts,
        request_rate="inf",
        max_concurrency=options.concurrency,
    )
    latencies = {rate: latency_s(replace(base, acceptance_rate=rate)) for rate in options.acceptance_rates}
    mixed = latency_s(base)
    gains = {cap: throughputs(replace(base, cap=cap), options.batches) for cap in ("none", "mean")}
    report(mixed, latencies, gains)
    about = f"{options.trace} lengths, {options.profile}, {options.num_prompts} requests"
    save_picture(partial(draw, mixed, latencies, gains, about), options.output)


def latency_s(config: SimConfig) -> dict[str, float]:
    """Mean latency of every fixed length and of every rule that is registered."""
    inputs = load_inputs(config)
    rules = [rule for rule in RULES if rule.partition(":")[0] in policies]
    return {
        policy: simulate(replace(config, policy=policy), inputs).metrics["mean_e2el_ms"] / 1e3
        for policy in ("none", *FIXED, *rules)
    }


def throughputs(config: SimConfig, batches: list[int]) -> dict[int, float]:
    """Output tokens per second of DSDE at each concurrency."""
    inputs = load_inputs(config)
    return {
        size: simulate(replace(config, policy="dsde", max_concurrency=size), inputs).metrics["output_throughput"]
        for size in batches
    }


def best_fixed(latency: dict[str, float]) -> str:
    return min(FIXED, key=latency.__getitem__)


def report(mixed: dict[str, float], latencies: Latencies, gains: dict[str, dict[int, float]]) -> None:
    best = best_fixed(mixed)
    print(f"mixed workload, mean latency: {', '.join(f'{name} {s:.3f} s' for name, s in mixed.items())}")
    print(f"  dsde against {best}, the best fixed length: {100 * (mixed['dsde'] / mixed[best] - 1):+.1f} %")
    for rate, latency in latencies.items():
        best = best_fixed(latency)
        rest = ", ".join(
            f"{name} {100 * (latency[name] / latency[best] - 1):+.1f} %" for name in RULES if name in latency
        )
        print(f"acceptance {rate:g}: {best} {latency[best]:.3f} s; against it {rest}")
    for size in gains["none"]:
        worth = 100 * (gains["mean"][size] / gains["none"][size] - 1)
        print(f"B = {size}: dsde {gains['none'][size]:.0f} tok/s without a cap, the mean cap is worth {worth:+.1f} %")
    first, last = min(gains["none"]), max(gains["none"])
    growth = ", ".join(f"{cap} {each[last] / each[first]:.2f}x" for cap, each in gains.items())
    print(f"from B = {first} to {last}: {growth} ({PUBLISHED_CAP})")


def draw(mixed: dict[str, float], latencies: Latencies, gains: dict[str, dict[int, float]], about: str) -> Figure:
    figure = new_figure(11, 3.6)
    left, middle, right = figure.subplots(1, 3)
    names = list(mixed)
    left.barh(names[::-1], [mixed[name] for name in names[::-1]], color=[RULES.get(n, GREY) for n in names[::-1]])
    left.set(title="mixed acceptance", xlabel="mean latency, s")

    rates = sorted(latencies)
    for name, colour in RULES.items():
        if name in mixed:
            excess = [100 * (latencies[r][name] / latencies[r][best_fixed(latencies[r])] - 1) for r in rates]
            middle.plot(rates, excess, color=colour, marker="o", markersize=4, label=name)
    middle.axhline(0, color=GREY, linewidth=1)
    middle.set(title="against the best fixed length", xlabel="mean acceptance", ylabel="mean latency, percent above it")
    middle.legend()

    for cap, colour in (("none", GREY), ("mean", BLUE)):
        each = gains[cap]
        first = min(each)
        label = f"cap {cap}"
        right.plot(
            list(each), [each[b] / each[first] for b in each], color=colour, marker="o", markersize=4, label=label
        )
    right.set(title="dsde: gain from batching", xlabel="requests at a time", ylabel="throughput / that of one")
    right.set_xscale("log", base=2)
    right.legend()
    figure.suptitle(about, x=0.01, ha="left", fontsize=8)
    return figure


if __name__ == "__main__":
    main()
