"""Regret of every registered policy to `oracle:goodput`, from an idle server to a saturated one, same luck for all.

    python benchmarks/regret.py --output-dir DIR

regret = mean time per output token / that of `oracle:goodput` on the same requests - 1. The mean is over tokens: the
seconds from first to last token of all requests, by their tokens after the first. Waiting for a slot is not in it.

Writes regret.parquet (one row a run) and regret.svg (one panel per acceptance source). A new policy is picked up from
the registry, with its default options and its own cap.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from sim.config import SimConfig
from sim.latency import timings_of
from sim.policies import policies
from sim.results import Results
from sim.simulate import Inputs, load_inputs, simulate
from sim.style import new_figure, save_picture
from traces.parquet import write_parquet

BOUND = "oracle:goodput"
VARIANTS = ("fixed:k=1", "fixed:k=2", "fixed:k=8")
SOURCES = ("regimes", "tiny-s", "tiny-s@0.4")
"""High, middle and low acceptance: 0.78 synthetic, 0.67 recorded, the same tilted to 0.4."""
RATES = ("0.25", "2", "8", "16", "32", "inf")
FIGURES = {
    "tpot_ms": "mean_tpot_ms",
    "throughput": "output_throughput",
    "batch": "mean_batch",
    "drafted": "spec_decode_proposed_tokens",
    "verified": "spec_decode_draft_tokens",
    "accepted": "spec_decode_accepted_tokens",
    "draft_s": "draft_time_s",
    "verify_s": "verify_time_s",
    "prefill_s": "prefill_time_s",
}


def time_per_token_ms(run: Results) -> float:
    """Milliseconds from first to last token over all completed requests, by their tokens after the first."""
    timings = timings_of(run.log, run.workload)
    done = timings.success
    decode_s = timings.e2el_s[done].sum() - timings.ttft_s[done].sum()
    return float(1e3 * decode_s / (timings.output_tokens[done] - 1).sum())


@lru_cache(maxsize=2)
def inputs_of(config: SimConfig) -> Inputs:
    return load_inputs(config)


def measure(base: SimConfig, source: str, rate: str, policy: str) -> dict[str, Any]:
    """One run as one row."""
    acceptance, _, tilt = source.partition("@")
    config = replace(base, acceptance=acceptance, acceptance_rate=float(tilt) if tilt else None, request_rate=rate)
    run = simulate(replace(config, policy=policy), inputs_of(config))
    row = {"source": source, "rate": rate, "policy": policy, "lossless": policies[policy.partition(":")[0]].lossless}
    return row | {"token_ms": time_per_token_ms(run)} | {name: run.metrics[key] for name, key in FIGURES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default=SimConfig.profile)
    parser.add_argument("--trace", default="sharegpt")
    parser.add_argument("--num-prompts", type=int, default=300)
    parser.add_argument("--sources", nargs="+", default=SOURCES, metavar="ACCEPTANCE[@RATE]")
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--policies", nargs="+", default=[*policies, *VARIANTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, required=True)
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    base = SimConfig(trace=options.trace, profile=options.profile, num_prompts=options.num_prompts, seed=options.seed)
    specs = dict.fromkeys([BOUND, *options.policies])
    todo = [(base, source, rate, policy) for source in options.sources for rate in options.rates for policy in specs]
    with ProcessPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(measure, *zip(*todo, strict=True)))
    frame = with_regret(pd.DataFrame(rows))
    write_parquet(options.output_dir / "regret.parquet", frame)
    for source in options.sources:
        print(f"regret in percent, {source}; {BOUND} in ms per token\n{as_text(frame, source, options.rates)}\n")
    print_beaten(frame)
    about = f"{options.trace} lengths (sampled), {options.profile}, {options.num_prompts} requests"
    save_picture(partial(draw, frame, options.sources, options.rates, about), options.output_dir / "regret.svg")


def with_regret(frame: pd.DataFrame) -> pd.DataFrame:
    bound = frame[frame["policy"] == BOUND].set_index(["source", "rate"])["token_ms"]
    at = pd.MultiIndex.from_frame(frame[["source", "rate"]])
    return frame.assign(regret=frame["token_ms"].to_numpy() / bound.loc[at].to_numpy() - 1)


def percents(frame: pd.DataFrame, source: str, rates: list[str]) -> pd.DataFrame:
    """Policies by rates, and their mean; the least regret first."""
    rows = frame[(frame["source"] == source) & (frame["policy"] != BOUND)]
    table = 100 * rows.pivot_table(index="policy", columns="rate", values="regret")[list(rates)]
    return table.assign(mean=table.mean(axis=1)).sort_values("mean")


def as_text(frame: pd.DataFrame, source: str, rates: list[str]) -> str:
    bound = frame[(frame["source"] == source) & (frame["policy"] == BOUND)].set_index("rate")["token_ms"]
    first = " ".join([f"{BOUND:<24}", *(f"{bound[rate]:8.3f}" for rate in rates)])
    return percents(frame, source, rates).round(1).to_string() + "\n" + first


def print_beaten(frame: pd.DataFrame) -> None:
    """Where a lossless policy is more than 1 % faster than the bound, which is greedy step by step."""
    better = frame[(frame["regret"] < -0.01) & frame["lossless"]]
    print(f"{BOUND} beaten by more than 1 %: {len(better)} of {len(frame)} runs")
    for row in better.itertuples():
        print(f"  {row.source} at {row.rate}: {row.policy} {100 * row.regret:.1f} %")


def draw(frame: pd.DataFrame, sources: list[str], rates: list[str], about: str) -> Figure:
    """The tables as heat maps, policies sorted by mean regret over all of them."""
    order = frame[frame["policy"] != BOUND].groupby("policy")["regret"].mean().sort_values().index
    figure = new_figure(2.2 + 3.0 * len(sources), 0.9 + 0.24 * len(order))
    panels = figure.subplots(1, len(sources), sharey=True, squeeze=False)[0]
    for axes, source in zip(panels, sources, strict=True):
        table = percents(frame, source, rates).loc[order, list(rates)].to_numpy()
        axes.imshow(np.clip(table, 0, 100), cmap="YlOrRd", vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(table):
            colour = "white" if value > 65 else "black"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=7)
        axes.set_xticks(range(len(rates)), rates)
        axes.set_yticks(range(len(order)), order)
        axes.set_xlabel("request rate, requests/s")
        axes.set_title(f"acceptance {source}")
        axes.grid(visible=False)
    figure.suptitle(f"regret to {BOUND} in percent of the time per token; {about}", x=0.01, ha="left", fontsize=8)
    return figure


if __name__ == "__main__":
    main()
