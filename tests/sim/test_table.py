"""What the table shows, at which width, and what it says when there is nothing to show (F9, F34)."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from sim.table import idle_note, number, print_table
from tests.sim.eventlogs import Scribe, workload
from tests.sim.runs import busy, empty, results_of, small


def shown(*runs, width: int = 80, terminal: bool = False) -> str:
    file = io.StringIO()
    print_table(*runs, console=Console(file=file, width=width, force_terminal=terminal, color_system=None))
    return file.getvalue()


def line(text: str, label: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(label))


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("runs", [(small,), (empty,), (busy,), (busy, small), (busy, busy, busy)])
def test_is_ascii_and_fits(width, runs):
    text = shown(*(run() for run in runs), width=width)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut_off(width):
    text = shown(busy(), width=width)
    for label in (
        "wall clock idle",
        "draft slots idle",
        "prefix-cached tokens",
        "goodput, req/s",
    ):
        assert label in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_long_policy_names_wrap():
    run = small()
    runs = [replace(run, config={**run.config, "policy": f"dsde:preset=paper,k_max={k},window=10"}) for k in (8, 9)]
    text = shown(*runs, width=80)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    assert line(text, "verified in vain").split()[-3:] == ["50.0%", "1.00x", "50.0%"]


def test_figures_are_those_of_the_metrics():
    # the small run: TTFT 100 ms twice; one TPOT, (0.4 - 0.1) / 3 = 100 ms; gaps 200 and 100 ms; E2EL 400 and 100 ms
    text = shown(small())
    assert line(text, "TTFT").split() == ["TTFT", *["|", "100"] * 4]
    assert line(text, "TPOT").split() == ["TPOT", *["|", "100"] * 4]
    assert line(text, "ITL").split()[2] == "150"
    assert line(text, "E2EL").split()[2] == "250"
    assert "TTFT <= 500 ms, TPOT <= 50 ms" in text


def test_undefined_is_a_dash():
    text = shown(empty())
    assert line(text, "TPOT").split() == ["TPOT", *["|", "-"] * 4]
    assert "nan" not in text.lower()
    assert "None" not in text
    assert "no drafts, no acceptance" in text


def test_books_and_rejection():
    text = shown(small())
    assert "injected 4 = completed 2 + running 1 + queued 0 + rejected 1; 1 not arrived" in text
    assert "rejected 1, the first: prompt longer than the KV pool" in text


def test_books_that_do_not_balance_say_so():
    run = small()
    metrics = {**run.metrics, "conservation": run.metrics["conservation"] | {"running": 0}}
    assert "injected 4 IS NOT completed 2 + running 0" in shown(replace(run, metrics=metrics))


def test_provenance_is_in_the_footer():
    text = shown(small())
    for words in ("sampled from ShareGPT V3", "h100-llama-3.1-70b-tp8 (0123abcd)", "seed 7"):
        assert words in text
    assert line(text, "synthetic").split() == ["synthetic", "acceptance"]
    assert line(text, "modelled").split(None, 1)[1].strip() == "attention of several queries; host time"


def test_ratio_to_the_last_run():
    run = small()
    twice = replace(run, config={**run.config, "policy": "twice"}, metrics={**run.metrics, "mean_ttft_ms": 200.0})
    text = shown(twice, run)
    assert line(text, "TTFT mean").split() == ["TTFT", "mean", "200", "2.00x", "100"]
    assert line(text, "preemptions").split() == ["preemptions", "0", "-", "0"]


def test_time_bar_fills_its_width():
    # draft 0.04, verify 0.22, prefill 0.1, host 0.04 of 0.4 s on 80 - 13 = 67 places: up to 7, 44, 60, 67
    assert line(shown(small()), "busy time") == f"busy time  [{'d' * 7}{'v' * 37}{'p' * 16}{'h' * 7}]"
    assert "\N{FULL BLOCK}" * 67 in shown(small(), terminal=True)


def test_percentiles_that_were_asked_for():
    run = results_of(Scribe(workload([8], [1])).arrive().step(0.0, 0.1, [(0, 1)]).finish(0), percentiles=(25, 99.9))
    assert line(shown(run), "Latency").split() == ["Latency,", "ms", "|", "mean", "|", "p25", "|", "p99.9"]


def test_idle_system_is_flagged():
    # F34: one request of 0.2 s every 100 s
    scribe = Scribe(workload([8] * 10, [2] * 10, [100.0 * i for i in range(10)])).arrive()
    for i in range(10):
        scribe.step(100.0 * i, 100.0 * i + 0.1, [(i, 1)])
        scribe.step(100.0 * i + 0.1, 100.0 * i + 0.2, [(i, 1, 0, 0)]).finish(i)
    assert "idle system" in shown(results_of(scribe))
    assert line(shown(results_of(scribe)), "offered").split()[2] == "0.01"  # 9 / 900 s
    assert idle_note(busy().metrics) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.0113, "0.011"), (0.5, "0.50"), (9.126, "9.13"), (31.25, "31.2"), (1459.4, "1,459")],
)
def test_number(value, text):
    assert number(value) == text
