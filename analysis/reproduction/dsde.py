"""DSDE (arXiv 2509.01083): eight task workloads at batch 64, throughput from batch 1 to 64 with and without the cap,
pairs of high and low acceptance, signals against acceptance. Published figures [P]."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from analysis.intervals import Estimate
from analysis.reproduction.claims import Claim, Reproduction, shown
from analysis.reproduction.runs import (
    FIXED,
    STATIC_OPT,
    Setting,
    against,
    best_fixed,
    cells,
    mean_of,
    ratio,
    with_static_opt,
)
from analysis.reproduction.workloads import MIXED, TASKS, rate_of, write_workloads
from calibrate.acceptance import history, pearson
from sim.config import SimConfig
from sim.replay.sources import acceptance_source
from sim.replay.windows import Windows
from sim.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, new_figure, save_picture

if TYPE_CHECKING:
    from pandas import DataFrame

BATCH = 64
BATCHES = (1, 4, 16, 64)
SCALED = "cnn_dailymail"
HIGH, LOW = 0.9, 0.3
PAIRS = (LOW, 0.45, 0.6, 0.75, HIGH)
ADAEDL = "adaedl:scope=batch,gamma=0.1,min_spec=6"
"""As in DSDE's repository, which its figures come from: the first sequence stops all, never fewer than six tokens."""
RULES = (ADAEDL, "adaedl", "dsde", "dsde:preset=code")
POLICIES = ("none", *FIXED, *RULES)
SHORT = {ADAEDL: "AdaEDL, DSDE's copy", "adaedl": "AdaEDL as published", "dsde": "DSDE", "none": "AR"}
SHORT |= {"dsde:preset=code": "DSDE's code", STATIC_OPT: STATIC_OPT}

LATENCY_S = {0: {"none": 38.41, STATIC_OPT: 13.44, ADAEDL: 13.83, "dsde": 13.97}}
LATENCY_S[1] = {STATIC_OPT: 18.02, ADAEDL: 17.64, "dsde": 19.19}
GROWTH = {0: {"none": 11.21, "mean": 12.16}, 1: {"none": 11.92, "mean": 13.01}}
"""Throughput at batch 64 / at batch 1, CNN/DM, by cap."""
CORRELATION = {"draft entropy": -0.339, "mean KLD": -0.164, "WVIR": 0.128}
CLOSE = 0.10
GAIN = 0.5
IDLE, DRAFTING = "draft_idle_share", "draft_time_share"
PROPOSED = 5
"""Draft tokens of a step in the correlations."""


def reproduce(setting: Setting) -> Reproduction:
    """Run what is missing and hold it against the paper; draws dsde.svg. Raises InputError if a run fails."""
    bank = acceptance_source(setting.acceptance)
    paths = write_workloads(setting.directory / "workloads", setting.num_prompts)
    latency = {t: with_static_opt(setting.run(f"latency-t{t}", latency_runs(setting, paths, bank, t))) for t in (0, 1)}
    scaling = {t: setting.run(f"scaling-t{t}", scaling_runs(setting, paths, bank, t)) for t in (0, 1)}
    pairs = setting.run("pairs", pair_runs(setting, paths))
    claims = [claim for t in (0, 1) for claim in latency_claims(latency[t], t)]
    claims += [claim for t in (0, 1) for claim in scaling_claims(scaling[t], t)]
    claims += [*pair_claims(pairs), *correlation_claims(bank)]
    save_picture(partial(draw, latency[0], scaling[0], pairs), setting.directory / "dsde.svg")
    tables = {f"Mean latency, s, T = {t}": latency_table(latency[t]) for t in (0, 1)}
    tables |= {f"Output tokens per second, {SCALED}, DSDE, T = {t}": scaling_table(scaling[t]) for t in (0, 1)}
    tables["Mean latency, s, by mean acceptance of the pair (tilted)"] = pair_table(pairs)
    return Reproduction("DSDE (arXiv 2509.01083) in simulation", claims, differences(setting, bank), tables)


def at_temperature(config: SimConfig, setting: Setting, bank: Windows, workload: str, temperature: int) -> SimConfig:
    """T = 0 replays the bank; T = 1 a bank recorded by sampling or, synthetic, a source tilted to the task's rate."""
    if not temperature:
        return config
    synthetic = acceptance_source(setting.sampled_acceptance).kind == "synthetic"
    rate = round(rate_of(bank, workload), 4) if synthetic else None
    return replace(config, temperature=1.0, acceptance=setting.sampled_acceptance, acceptance_rate=rate)


def latency_runs(setting: Setting, paths: dict[str, str], bank: Windows, temperature: int) -> list[SimConfig]:
    configs = []
    for task in TASKS:
        base = at_temperature(setting.base(paths[task], BATCH), setting, bank, task, temperature)
        configs += [replace(base, policy=policy, seed=seed) for policy in POLICIES for seed in setting.seeds]
    return configs


def scaling_runs(setting: Setting, paths: dict[str, str], bank: Windows, temperature: int) -> list[SimConfig]:
    return [
        at_temperature(
            replace(setting.base(paths[SCALED], batch), policy="dsde", cap=cap, seed=seed),
            setting,
            bank,
            SCALED,
            temperature,
        )
        for batch in BATCHES
        for cap in ("none", "mean")
        for seed in setting.seeds
    ]


def pair_runs(setting: Setting, paths: dict[str, str]) -> list[SimConfig]:
    base = setting.base(paths[MIXED], BATCH)
    return [
        replace(base, acceptance_rate=rate, policy=policy, seed=seed)
        for rate in PAIRS
        for policy in POLICIES
        for seed in setting.seeds
    ]


def latency_claims(runs: DataFrame, temperature: int) -> list[Claim]:
    published, where = LATENCY_S[temperature], f"T = {temperature}, mean latency"
    claims = []
    if "none" in published:
        theirs, ours = published["none"] / published[STATIC_OPT], against(runs, "none", STATIC_OPT)
        claims.append(
            Claim(
                f"{where}: AR / {STATIC_OPT}",
                f"{theirs:.2f}x",
                shown(ours),
                "faster than AR, by at least half of the published gain",
                gained := ours.above(1) and ours.mean - 1 >= GAIN * (theirs - 1),
                "" if gained else _why_slow(runs, theirs),
            )
        )
    for policy in ("dsde", ADAEDL):
        theirs, ours = published[policy] / published[STATIC_OPT], against(runs, policy, STATIC_OPT)
        what = f"{where}: {SHORT[policy]} / {STATIC_OPT}"
        rule = f"within {CLOSE:.0%} of {STATIC_OPT}"
        close = abs(ours.mean - 1) <= CLOSE
        claims.append(
            Claim(what, f"{theirs:.3f}x", shown(ours, ".3f"), rule, close, "" if close else _why_far(runs, policy))
        )
    theirs, ours = published["dsde"] / published[ADAEDL], against(runs, "dsde", ADAEDL)
    slower = ours.above(1)
    why = "" if slower else f"{_why_far(runs, ADAEDL)}; see high acceptance ({HIGH}) for an easier draft"
    what = f"{where}: DSDE / {SHORT[ADAEDL]}"
    claims.append(Claim(what, f"{theirs:.3f}x", shown(ours, ".3f"), "DSDE the slower one", slower, why))
    return claims


def _why_slow(runs: DataFrame, published: float) -> str:
    emitted, k = mean_of(runs, STATIC_OPT, "mean_emitted_per_step"), mean_of(runs, STATIC_OPT, "mean_draft_length")
    waiting = 100 * mean_of(runs, STATIC_OPT, "mean_ttft_ms") / mean_of(runs, STATIC_OPT, "mean_e2el_ms")
    dearer = step_s(runs, STATIC_OPT) / step_s(runs, "none")
    until_all = against(runs, "none", STATIC_OPT, "duration")
    needed = f"{'fewer' if emitted < published else 'more'} than the {published:.2f} it needs"
    return (
        f"{emitted:.2f} tokens a step ({k:.1f} drafted), {needed}; a step with its draft costs {dearer:.2f} times "
        f"one of AR, and the time to the first token, {waiting:.0f} % of the latency, is not made faster; until all "
        f"requests are served the gain is {shown(until_all)}"
    )


def step_s(runs: DataFrame, policy: str) -> float:
    """Seconds of a decoding step without the prefill in it."""
    own = runs[runs["policy"] == policy]
    return float(
        sum(own[f"{part}_time_s"].sum() for part in ("draft", "verify", "host")) / own["num_decode_steps"].sum()
    )


def _why_far(runs: DataFrame, policy: str) -> str:
    drafted, best = mean_of(runs, policy, "mean_draft_length"), mean_of(runs, STATIC_OPT, "mean_draft_length")
    waste, other = (100 * mean_of(runs, each, "wasted_verify_share") for each in (policy, STATIC_OPT))
    floor = " (never fewer than six but at the end of an answer)" if policy == ADAEDL else ""
    return (
        f"{SHORT[policy]} drafts {drafted:.1f} tokens a step{floor}, {waste:.0f} % of them in vain; "
        f"{STATIC_OPT} drafts {best:.1f}, {other:.0f} % in vain"
    )


def scaling_claims(runs: DataFrame, temperature: int) -> list[Claim]:
    published, where = GROWTH[temperature], f"T = {temperature}, {SCALED}"
    at = {(cap, size): own for (cap, size), own in runs.groupby(["cap", "max_concurrency"])}
    first, last = min(BATCHES), max(BATCHES)
    claims = []
    for cap, name in (("none", "no cap"), ("mean", "mean cap")):
        ours = ratio(at[cap, last], at[cap, first], "output_throughput")
        near = abs(ours.mean / published[cap] - 1) <= 2 * CLOSE
        claims.append(
            Claim(
                f"{where}: DSDE's throughput, batch {first} to {last}, {name}",
                f"{published[cap]:.2f}x",
                shown(ours),
                f"within {2 * CLOSE:.0%} of the published growth",
                near,
                "" if near else "other costs of a step: the profile's target pass grows with the batch at another rate",
            )
        )
    worth = {size: ratio(at["mean", size], at["none", size], "output_throughput") for size in BATCHES[1:]}
    theirs, most = published["mean"] / published["none"], max(worth, key=lambda size: worth[size].mean)
    ours = worth[last]
    idle, drafting = ({c: 100 * float(at[c, last][m].mean()) for c in ("none", "mean")} for m in (IDLE, DRAFTING))
    small = ours.mean - 1 < GAIN * (theirs - 1)
    why = (
        f"smaller than published: the cap lowers idle draft slots from {idle['none']:.0f} to {idle['mean']:.0f} %, "
        f"but drafting takes {drafting['none']:.0f} % of the time at batch {last}, {drafting['mean']:.0f} % with it; "
        f"the cap is worth most at batch {most}, {_percent(worth[most])}"
    )
    claims.append(
        Claim(
            f"{where}: what the cap is worth at batch {last}",
            f"{100 * (theirs - 1):+.1f} %",
            _percent(ours),
            "pays, beyond noise",
            ours.above(1),
            why if small else "",
        )
    )
    return claims


def _percent(value: Estimate) -> str:
    interval = f" [{100 * (value.low - 1):+.1f}, {100 * (value.high - 1):+.1f}]" if value.certain else ""
    return f"{100 * (value.mean - 1):+.1f} %{interval}"


def pair_claims(runs: DataFrame) -> list[Claim]:
    at = {rate: with_static_opt(runs[runs["acceptance_rate"] == rate]) for rate in (LOW, HIGH)}
    high = {policy: against(at[HIGH], policy, STATIC_OPT) for policy in (ADAEDL, "dsde")}
    low = {policy: against(at[LOW], policy, STATIC_OPT) for policy in (ADAEDL, "dsde")}
    published = LATENCY_S[0]
    ordered = high[ADAEDL].mean < high["dsde"].mean and high["dsde"].above(1)
    robust = low["dsde"].mean < low[ADAEDL].mean
    gain = against(at[HIGH], "none", STATIC_OPT)
    return [
        Claim(
            f"high acceptance ({HIGH}, tilted): AR / {STATIC_OPT}",
            f"{published['none'] / published[STATIC_OPT]:.2f}x",
            shown(gain),
            "a draft this good gains at least half of the published gain",
            gain.mean - 1 >= GAIN * (published["none"] / published[STATIC_OPT] - 1),
            _why_slow(at[HIGH], published["none"] / published[STATIC_OPT])
            if gain.mean - 1 < GAIN * (published["none"] / published[STATIC_OPT] - 1)
            else "",
        ),
        Claim(
            f"high acceptance ({HIGH}, tilted): AdaEDL and DSDE / {STATIC_OPT}",
            f"{published[ADAEDL] / published[STATIC_OPT]:.3f}x, {published['dsde'] / published[STATIC_OPT]:.3f}x",
            f"{shown(high[ADAEDL], '.3f')}, {shown(high['dsde'], '.3f')}",
            f"in the order {STATIC_OPT}, AdaEDL, DSDE",
            ordered,
            "" if ordered else _why_far(at[HIGH], "dsde"),
        ),
        Claim(
            f"low acceptance ({LOW}, tilted): AdaEDL and DSDE / {STATIC_OPT}",
            "DSDE more robust where acceptance is low (in words)",
            f"{shown(low[ADAEDL], '.3f')}, {shown(low['dsde'], '.3f')}",
            "DSDE loses less than AdaEDL",
            robust,
            "" if robust else _why_far(at[LOW], "dsde"),
        ),
    ]


def correlations(windows: Windows) -> dict[str, tuple[float | None, int]]:
    """Pearson's r, and of how many steps: signals of PROPOSED tokens and their share accepted; WVIR before them."""
    depth = min(PROPOSED, windows.depth)
    share = windows.accept[:, :depth].cumprod(axis=1).mean(axis=1, dtype=np.float64)
    found = {
        words: (pearson(windows.on[name][:, :depth].mean(axis=1, dtype=np.float64), share), len(share))
        for words, name in (("draft entropy", "draft_entropy"), ("mean KLD", "kld"))
    }
    rows, _, wvir = history(windows)
    return found | {"WVIR": (pearson(wvir, share[rows]), len(rows))}


def correlation_claims(windows: Windows) -> list[Claim]:
    claims = []
    for name, (ours, steps) in correlations(windows).items():
        theirs, noise = CORRELATION[name], 2 / max(steps, 1) ** 0.5
        same = ours is not None and ours * theirs > 0 and abs(ours) > noise
        if ours is None:
            why = "the signal is a constant here"
        elif abs(ours) <= noise:
            why = f"no correlation beyond the noise of {steps:,} steps, {noise:.3f}, on this pair's texts"
        else:
            why = "on this pair's texts the sign is the other one"
        words = "-" if ours is None else f"{ours:+.3f}"
        what = f"T = 0: correlation of acceptance with {name}"
        claims.append(Claim(what, f"{theirs:+.3f}", words, "same sign, beyond noise", same, "" if same else why))
    return claims


def differences(setting: Setting, bank: Windows) -> list[tuple[str, str, str]]:
    sampled = acceptance_source(setting.sampled_acceptance)
    how = "synthetic, tilted to each task's rate at T = 0" if sampled.kind == "synthetic" else sampled.kind
    return [
        ("models and device", "Llama-3.1-70B + 3.2-1B, 8 x A100", f"profile {setting.profile}"),
        ("engine", "vLLM 0.8.4, eager", "vLLM-V1 scheduler, simulated; no overhead of eager mode"),
        ("workloads", "the texts of its data sets", "lengths of named traces, the nearest tasks of the bank"),
        (
            "requests",
            "128, batch 64",
            f"{setting.num_prompts}, all there at once, {BATCH} at a time",
        ),
        ("T = 0", "the pair's own greedy acceptance", f"{bank.name}, {bank.kind}, mean {bank.mean_acceptance:.2f}"),
        ("T = 1", "sampled", f"{sampled.name}, {how}"),
        ("pairs", "two pairs of models", f"{bank.name} tilted to {LOW} and {HIGH}; signals stay as they are"),
        (STATIC_OPT, "best of k = 2, 4, 6, 8, 10", "the same, of each workload, on the runs that it is judged by"),
        ("AdaEDL", "as in its repository", f"{ADAEDL}; as published beside it, in the tables"),
        ("DSDE", "as in the paper", "preset paper; the constants of its repository beside it, in the tables"),
    ]


def latency_table(runs: DataFrame) -> list[list[str]]:
    best, latency = best_fixed(runs), cells(runs, "workload", "policy", "mean_e2el_ms")
    names = ["none", STATIC_OPT, *RULES]
    rows = [["workload", *(SHORT[name] for name in names), "best k"]]
    rows += [[t, *(f"{latency[t, name] / 1e3:.3f}" for name in names), best[t].partition("=")[2]] for t in TASKS]
    return [*rows, ["mean", *(f"{mean_of(runs, name, 'mean_e2el_ms') / 1e3:.3f}" for name in names), ""]]


def scaling_table(runs: DataFrame) -> list[list[str]]:
    speed = cells(runs, "cap", "max_concurrency", "output_throughput")
    rows = [["batch", "no cap", "mean cap", "cap is worth"]]
    for size in BATCHES:
        none, mean = speed["none", size], speed["mean", size]
        rows.append([str(size), f"{none:.0f}", f"{mean:.0f}", f"{100 * (mean / none - 1):+.1f} %"])
    return rows


def pair_table(runs: DataFrame) -> list[list[str]]:
    latency = cells(runs, "policy", "acceptance_rate", "mean_e2el_ms")
    rows = [["policy", *(f"{rate:g}" for rate in PAIRS)]]
    return rows + [[SHORT.get(p, p), *(f"{latency[p, rate] / 1e3:.3f}" for rate in PAIRS)] for p in POLICIES]


def draw(latency: DataFrame, scaling: DataFrame, pairs: DataFrame) -> Figure:
    """Latency by policy, distance to static-opt by acceptance, gain from batching; T = 0."""
    figure = new_figure(11, 3.6)
    left, middle, right = figure.subplots(1, 3)
    look = {ADAEDL: (VERMILLION, "s"), "adaedl": (ORANGE, "^"), "dsde": (BLUE, "o"), "dsde:preset=code": (GREEN, "D")}
    names = ["none", STATIC_OPT, *RULES]
    colours = {"none": GREY, STATIC_OPT: PURPLE} | {name: colour for name, (colour, _) in look.items()}
    left.barh(
        [SHORT[name] for name in names[::-1]],
        [mean_of(latency, name, "mean_e2el_ms") / 1e3 for name in names[::-1]],
        color=[colours[name] for name in names[::-1]],
    )
    left.set(title="eight workloads, T = 0", xlabel="mean latency, s")

    at = {rate: with_static_opt(pairs[pairs["acceptance_rate"] == rate]) for rate in PAIRS}
    for name, (colour, marker) in look.items():
        excess = [100 * (against(own, name, STATIC_OPT).mean - 1) for own in at.values()]
        middle.plot(list(at), excess, color=colour, marker=marker, markersize=4, label=SHORT[name])
    middle.axhline(0, color=GREY, linewidth=1)
    middle.set(
        title=f"against {STATIC_OPT}", xlabel="mean acceptance (tilted)", ylabel="mean latency, percent above it"
    )
    middle.set_ylim(top=1.5 * middle.get_ylim()[1])
    middle.legend()

    speed = cells(scaling, "cap", "max_concurrency", "output_throughput")
    lines: tuple[tuple[str, str, str, str], ...] = (("none", "no cap", GREY, "s"), ("mean", "mean cap", BLUE, "o"))
    for cap, label, colour, marker in lines:
        gain = [speed[cap, size] / speed[cap, BATCHES[0]] for size in BATCHES]
        right.plot(BATCHES, gain, color=colour, marker=marker, markersize=4, label=label)
    right.set(title="DSDE: gain from batching", xlabel="requests at a time", ylabel="throughput / that of one")
    right.set_xscale("log", base=2)
    right.set_xticks(BATCHES, [str(size) for size in BATCHES])
    right.legend()
    return figure
