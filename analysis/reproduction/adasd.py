"""AdaSD (arXiv 2512.11280), our RECONSTRUCTION [O]: its speed against vanilla speculative decoding, one request at a
time on eight task workloads, and what its lossy acceptance does to the text of a live pair. Published figures [A]."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from analysis.intervals import Estimate
from analysis.reproduction.claims import Claim, Reproduction, shown
from analysis.reproduction.runs import FIXED, STATIC_OPT, Setting, against, best_fixed, mean_of, with_static_opt
from analysis.reproduction.workloads import TASKS, write_workloads
from sim.config import SimConfig
from sim.policies.adasd import AdaSD
from sim.style import BLUE, GREY, ORANGE, new_figure, save_picture
from traces.errors import InputError
from traces.files import read_text

if TYPE_CHECKING:
    from pandas import DataFrame

VANILLA = "fixed:k=4"
STOP_ALONE = "adasd, lossless"
FASTEST, LOSS = 1.46, 0.018
"""Up to so many times as fast as standard speculative decoding, with less than this lost in accuracy [A]."""


def reproduce(setting: Setting, lossy: Path | None = None, lossless: Path | None = None) -> Reproduction:
    """Run what is missing and hold it against the paper; draws adasd.svg. lossy, lossless: live runs to compare.

    Raises InputError if a run fails or a live run cannot be read.
    """
    live = live_claim(lossy, lossless)
    paths = write_workloads(setting.directory / "workloads", setting.num_prompts)
    runs = setting.run("speed", speed_runs(setting, paths))
    stop = (runs["policy"] == "adasd") & (runs["acceptance_rule"] == "lossless")
    runs = with_static_opt(runs.assign(policy=runs["policy"].mask(stop, STOP_ALONE)))
    claims = [*speed_claims(runs), live]
    save_picture(partial(draw, runs), setting.directory / "adasd.svg")
    tables = {"Times as fast as vanilla speculative decoding (k = 4)": speed_table(runs)}
    return Reproduction(f"AdaSD (arXiv 2512.11280) in simulation: {AdaSD.note}", claims, differences(setting), tables)


def speed_runs(setting: Setting, paths: dict[str, str]) -> list[SimConfig]:
    rules = [("none", None), *((policy, None) for policy in FIXED), ("adasd", None), ("adasd", "lossless")]
    return [
        replace(setting.base(paths[task], 1), policy=policy, acceptance_rule=rule, seed=seed)
        for task in TASKS
        for policy, rule in rules
        for seed in setting.seeds
    ]


def speed_ups(runs: DataFrame, policy: str) -> dict[str, Estimate]:
    """Times as fast as vanilla speculative decoding, of each workload."""
    return {task: against(runs[runs["workload"] == task], VANILLA, policy) for task in TASKS}


def speed_claims(runs: DataFrame) -> list[Claim]:
    each = speed_ups(runs, "adasd")
    best = max(each, key=lambda task: each[task].mean)
    overall, stop = against(runs, VANILLA, "adasd"), against(runs, VANILLA, STOP_ALONE)
    optimum = against(runs, STATIC_OPT, "adasd")
    lossy = 100 * mean_of(runs, "adasd", "lossy_output_share")
    drafted, fixed = mean_of(runs, "adasd", "mean_draft_length"), mean_of(runs, VANILLA, "mean_draft_length")
    emitted, before = mean_of(runs, "adasd", "mean_emitted_per_step"), mean_of(runs, VANILLA, "mean_emitted_per_step")
    why = (
        f"adasd drafts {drafted:.1f} tokens a step and emits {emitted:.2f}, vanilla drafts {fixed:.1f} and emits "
        f"{before:.2f}; the entropy threshold alone is worth {shown(stop)}. The paper's update rules may do better"
    )
    rule = "faster beyond noise, by at least half of the published gain"
    reached = each[best].above(1) and each[best].mean - 1 >= (FASTEST - 1) / 2
    return [
        Claim(
            f"speed-up over vanilla speculative decoding (k = 4), best workload ({best})",
            f"up to {FASTEST:.2f}x",
            shown(each[best]),
            rule,
            reached,
            "" if reached else why,
        ),
        Claim(
            "the same, mean of the eight workloads",
            "faster (in words)",
            shown(overall),
            "faster beyond noise",
            overall.above(1),
            "" if overall.above(1) else why,
        ),
        Claim(
            f"speed-up over {STATIC_OPT}, the best fixed length of each workload",
            "-",
            shown(optimum),
            "nothing to hold it against",
            None,
            f"beside it: {lossy:.1f} % of the output is accepted by the lossy rule alone",
        ),
    ]


def live_claim(lossy: Path | None, lossless: Path | None) -> Claim:
    what, published = "loss on a live pair", f"under {100 * LOSS:.1f} % of accuracy"
    rule = "accuracy is not measured here, so nothing to hold it against"
    if lossy is None or lossless is None:
        return Claim(
            what,
            published,
            "missing",
            rule,
            None,
            "no live runs given: python -m calibrate.live --policy adasd --output-dir A, the same with --policy fixed "
            "into B, then --live-lossy A --live-lossless B",
        )
    (ours, results), (theirs, exact) = live_run(lossy), live_run(lossless)
    if results["metrics"]["lossless"] or not exact["metrics"]["lossless"]:
        raise InputError(f"--live-lossy {lossy}, --live-lossless {lossless}: expected a lossy and a lossless run")
    both = [request for request in ours if request in theirs]
    if not both:
        raise InputError(f"{lossy} and {lossless} have no request in common")
    same = sum(ours[request] == theirs[request] for request in both)
    share = results["metrics"].get("lossy_output_share") or 0.0
    words = f"{same} of {len(both)} texts equal; {100 * share:.1f} % of the tokens accepted by the rule only"
    return Claim(what, published, words, rule, None, f"live run {lossy.name}; a text that differs need not be wrong")


def live_run(directory: Path) -> tuple[dict[int, list[int]], dict[str, Any]]:
    """Tokens of each finished request, and results.json, of what `python -m calibrate.live` wrote."""
    try:
        lines = [json.loads(line) for line in read_text(directory / "outputs.jsonl").text.splitlines()]
        results = json.loads(read_text(directory / "results.json").text)
        return {line["request_id"]: line["output_tokens"] for line in lines}, results
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{directory}: no live run of python -m calibrate.live ({error})") from None


def differences(setting: Setting) -> list[tuple[str, str, str]]:
    return [
        ("algorithm", "its own update formulas, not public", "our reconstruction: midpoints of running means"),
        ("models and device", "its own pairs", f"profile {setting.profile}"),
        ("workloads", "its own", "lengths of eight named traces, the nearest tasks of the bank"),
        ("acceptance", "its own pairs", f"{setting.acceptance}; behind a rejection the recorded text stands in"),
        ("batch", "not known here", "one request at a time"),
        ("vanilla", "standard speculative decoding", f"{VANILLA}; static-opt is the best of k = 2, 4, 6, 8, 10"),
        ("longest draft", "not known here", "20 tokens"),
    ]


def speed_table(runs: DataFrame) -> list[list[str]]:
    best = best_fixed(runs)
    columns = {name: speed_ups(runs, name) for name in ("none", STATIC_OPT, STOP_ALONE, "adasd")}
    rows = [["workload", "AR", f"{STATIC_OPT} (k)", STOP_ALONE, "adasd (LOSSY)", "by the rule only, %"]]
    for task in TASKS:
        words = {name: f"{column[task].mean:.2f}" for name, column in columns.items()}
        words[STATIC_OPT] += f" ({best[task].partition('=')[2]})"
        share = mean_of(runs[runs["workload"] == task], "adasd", "lossy_output_share")
        rows.append([task, *words.values(), f"{100 * share:.1f}"])
    return rows


def draw(runs: DataFrame) -> Figure:
    """Speed-up over vanilla of each workload."""
    figure = new_figure(7.5, 3.6)
    axes = figure.subplots()
    series = {STATIC_OPT: (GREY, "//"), STOP_ALONE: (ORANGE, ""), "adasd": (BLUE, "")}
    for place, (name, (colour, hatch)) in enumerate(series.items()):
        height = [each.mean for each in speed_ups(runs, name).values()]
        at = [task + 0.27 * (place - 1) for task in range(len(TASKS))]
        label = "adasd (LOSSY)" if name == "adasd" else name
        axes.bar(at, height, 0.25, color=colour, hatch=hatch, edgecolor="white", label=label)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(range(len(TASKS)), list(TASKS), rotation=20)
    axes.set(title="AdaSD, our reconstruction", ylabel="times as fast as vanilla (k = 4)")
    axes.set_ylim(0, 1.45 * axes.get_ylim()[1])
    axes.legend(ncols=3)
    return figure
