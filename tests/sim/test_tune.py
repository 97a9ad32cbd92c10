"""`python -m sim.tune`: yes or no, from gains over paired seeds; capacity by bisection; one line for a mistake."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pandas as pd
import pytest

from sim.config import SimConfig
from sim.sweep import read
from sim.tune.__main__ import main
from sim.tune.advice import Gain
from sim.tune.capacity import capacities
from sim.tune.engines import check_vllm
from traces.errors import InputError, run_command

SMALL = ["--trace", "random", "--input-len", "50", "--output-len", "40", "--num-prompts", "30", "--max-num-seqs", "16"]
SMALL += ["--request-rate", "20", "--seeds", "2", "--max-k", "2", "--policies", "--jobs", "1"]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict"),
    [
        (1.2, 1.1, 1.3, "yes"),
        (1.2, 0.9, 1.5, "no, within noise"),
        (0.8, 0.7, 0.9, "no, it is worse"),
        (1.0, 1.0, 1.0, "no, it is the same"),
        (1.2, float("nan"), float("nan"), "no, within noise"),  # one seed
    ],
)
def test_verdicts(ratio, low, high, verdict):
    assert Gain(ratio, low, high, 3).verdict == verdict


def served_up_to(limits: dict[tuple[str, int], float], tried: list[float]):
    """Stands in for a simulator: 95 % of the requests meet the SLO up to a rate of its own, 50 % beyond."""

    def run(configs: Sequence[SimConfig]) -> pd.DataFrame:
        rows = []
        for each in configs:
            rate = float(each.request_rate.removeprefix("trace*"))
            tried.append(rate)
            met = 0.95 if rate <= limits[each.policy, each.seed] else 0.5
            rows.append({"policy": each.policy, "seed": each.seed, "slo_attainment": met, "error": None})
        return pd.DataFrame(rows)

    return run


def search(rate: str, limits: dict[tuple[str, int], float], tried: list[float]) -> dict[tuple[str, int], float]:
    policies, seeds = sorted({name for name, _ in limits}), sorted({seed for _, seed in limits})
    return dict(capacities(SimConfig(request_rate=rate), policies, seeds, 0.9, served_up_to(limits, tried)))


def test_capacity_is_found_within_three_percent():
    limits = {("none", 0): 5.0, ("none", 1): 6.0, ("fixed", 0): 100.0, ("fixed", 1): 0.7}
    for where, found in search("8", limits, []).items():
        assert 0.97 * limits[where] <= found <= limits[where]


def test_capacity_of_a_trace_with_times_of_its_own_is_a_factor():
    tried: list[float] = []
    found = search("trace*2", {("none", 0): 3.0}, tried)
    assert tried[0] == 2
    assert found["none", 0] == pytest.approx(3, rel=0.03)


@pytest.mark.parametrize(("limit", "expected"), [(0.0, 0.0), (1e9, float("inf"))])
def test_an_slo_that_is_never_or_always_met_ends_the_search(limit, expected):
    tried: list[float] = []
    assert search("8", {("none", 0): limit}, tried) == {("none", 0): expected}
    assert len(tried) == 11  # 8 and ten factors of two


def test_a_run_that_fails_is_not_an_slo_that_is_missed():
    failed = pd.DataFrame([{"policy": "none", "seed": 0, "slo_attainment": float("nan"), "error": "boom"}])
    with pytest.raises(InputError, match="boom"):
        capacities(SimConfig(request_rate="8"), ["none"], [0], 0.9, lambda _: failed)


def tune(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["sim.tune", *SMALL, *map(str, arguments)])
    return run_command(main)


def test_a_draft_that_fits_is_deployed(monkeypatch, capsys):
    assert tune(monkeypatch, "--acceptance", "iid:0.9", "--json") == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["deploy"] is True
    check_vllm(advice["speculative_config"], 16)
    assert advice["gains"]["schedule_over_none"]["low"] > 1
    assert advice["best_fixed"] == "fixed:k=2"
    assert advice["crossover_batch"] is None  # a 1B draft before a 70B target at 90 %: it pays at every batch


def test_a_draft_that_never_fits_is_not(monkeypatch, capsys):
    assert tune(monkeypatch, "--acceptance", "iid:0", "--json") == 0
    advice = json.loads(capsys.readouterr().out)
    assert advice["deploy"] is False
    assert advice["gains"]["schedule_over_none"]["is"] == "no, it is the same"  # K = 0 throughout is plain decoding
    assert advice["crossover_batch"] == 1


def test_what_is_printed_can_be_pasted(monkeypatch, capsys):
    assert tune(monkeypatch, "--acceptance", "iid:0.9", "--context-axis") == 0
    out = capsys.readouterr().out
    assert out.startswith("deploy the schedule?         yes")
    (pasted,) = [line for line in out.splitlines() if line.startswith("--speculative-config")]
    check_vllm(json.loads(pasted.partition("'")[2].removesuffix("'")), 16)
    assert "in no release" in out


def test_sglang(monkeypatch, capsys):
    assert tune(monkeypatch, "--acceptance", "iid:0.9", "--engine", "sglang") == 0
    assert "--speculative-adaptive-config adaptive.json" in capsys.readouterr().out


def test_capacity_with_and_without(monkeypatch, capsys, tmp_path):
    # four at a time, so that requests queue: 40 tokens at 11 ms make 9 requests/s without, about twice that with
    options = ["--goodput", "e2el:1000", "--num-prompts", "60", "--max-num-seqs", "4", "--output-dir", tmp_path]
    assert tune(monkeypatch, "--acceptance", "iid:0.9", *options, "--json") == 0
    capacity = json.loads(capsys.readouterr().out)["capacity"]
    assert set(capacity) == {"none", "schedule"}
    assert 6 < capacity["none"]["mean"] < 12
    assert capacity["schedule"]["mean"] > 1.5 * capacity["none"]["mean"]
    assert read(tmp_path)["request_rate"].nunique() > 5  # every run is in the table, those of the search too


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policy", "dsde"], "--policy"),
        (["--seeds", "0"], "--seeds 0"),
        (["--max-k", "0"], "--max-k 0"),
        (["--slo-attainment", "2"], "--slo-attainment 2"),
        (["--goodput", "tpot:50", "--max-concurrency", "4"], "by the clock"),
        (["--engine", "tgi"], "--engine"),
        (["--policies", "nix"], "unknown policy"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, arguments, expected):
    assert tune(monkeypatch, "--acceptance", "iid:0.9", *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert expected in captured.err
