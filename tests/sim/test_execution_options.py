"""The options of the engine as a user meets them: in results.json, in the table, as one line where they do not fit."""

from __future__ import annotations

import io
import json
import sys
from functools import cache

import pytest
from rich.console import Console

from sim.__main__ import main
from sim.config import SimConfig
from sim.results import Results
from sim.simulate import simulate
from sim.table import print_table
from traces.errors import run_command

SMALL = {"trace": "random", "input_len": 50, "output_len": 20, "num_prompts": 12, "acceptance": "regimes"}


@cache
def everything() -> Results:
    """fixed:k=3 with all options that go together."""
    options = {"cudagraph_capture_sizes": ("64,8", "16"), "switch_cost_ms": 2.5, "overlap": True}
    return simulate(SimConfig(**SMALL, **options, policy="fixed:k=3"))  # type: ignore[arg-type]


def table(run: Results) -> str:
    text = io.StringIO()
    print_table(run, console=Console(width=200, file=text))
    return text.getvalue()


def test_results_hold_the_options() -> None:
    config = json.loads(everything().to_json())["config"]
    found = {name: config[name] for name in ("draft_kind", "cudagraph_capture_sizes", "switch_cost_ms", "overlap")}
    assert found == {
        "draft_kind": "autoregressive",
        "cudagraph_capture_sizes": ["8", "16", "64"],
        "switch_cost_ms": 2.5,
        "overlap": True,
    }


def test_the_table_names_the_options_and_calls_them_modelled() -> None:
    text = " ".join(table(everything()).split())
    line = "autoregressive draft, padded; verification ragged; 3 graph sizes to 64; 2.5 ms per change of width"
    assert f"{line}; drafting overlaps verification" in text
    modelled = text.partition("modelled ")[2]
    for words in (
        "graphs: new tokens of a pass rounded up to one of 3 sizes to 64",
        "switch: 2.5 ms",
        "overlap: draft",
    ):
        assert words in modelled


@pytest.mark.parametrize("row", ["changes of width", "draft beside verify", "drafted in vain"])
def test_rows_of_an_option_appear_with_it(row: str) -> None:
    assert row in table(everything())
    assert row not in table(simulate(SimConfig(**SMALL, policy="fixed:k=3")))  # type: ignore[arg-type]


def test_the_books_balance() -> None:
    metrics = everything().metrics
    parts = sum(metrics[f"{part}_time_s"] for part in ("draft", "verify", "prefill", "host"))
    assert parts == pytest.approx(metrics["busy_time_s"], rel=1e-12)
    assert 0 < metrics["switch_time_s"] <= metrics["host_time_s"]
    assert 0 < metrics["wasted_draft_time_s"] <= metrics["hidden_draft_time_s"] + metrics["draft_time_s"]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"draft_kind": "ngram"}, "acceptance regimes was not recorded with a look-up"),
        ({"draft_kind": "parallel"}, None),
    ],
)
def test_a_look_up_with_the_acceptance_of_a_model_says_so(options: dict[str, str], note: str | None) -> None:
    run = simulate(SimConfig(**SMALL, **options))  # type: ignore[arg-type]
    assert any(note in each for each in run.provenance.notes) if note else "look-up" not in str(run.provenance.notes)


MISTAKES = [
    (["--draft-kind", "nix"], "--draft-kind"),
    (["--draft-kind", "parallel", "--overlap"], "--overlap needs a draft of its own"),
    (["--draft-kind", "ngram", "--policy", "priced"], "decides after each draft token"),
    (["--switch-cost-ms", "-1"], "--switch-cost-ms is -1.0"),
    (["--switch-cost-ms", "1e300"], "expected 0 to 1e+06"),
    (["--switch-cost-ms", "soon"], "--switch-cost-ms"),
    (["--cudagraph-capture-sizes", "4", "0"], "'0' is no whole number"),
]


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES, ids=lambda value: " ".join(value)[:40])
def test_a_mistake_is_one_line_and_status_2(monkeypatch, capsys, arguments, expected) -> None:
    monkeypatch.setattr(sys, "argv", ["sim", "--trace", "random", "--acceptance", "regimes", *arguments])
    assert run_command(main) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert expected in captured.err
