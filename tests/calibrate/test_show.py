"""`calibrate show`: figures of windows and costs worked by hand, what is printed, parts that are missing, errors."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from calibrate.acceptance import acceptance_lengths, binned, by_depth, correlations, mean_acceptance, of_task
from calibrate.plot import figure, plot
from calibrate.show import main, overview
from calibrate.summary import figures, read
from sim.replay.cost import ForwardCost, HostCost, MeasuredRange
from sim.replay.profile import Model, Profile
from sim.replay.windows import Windows
from traces.errors import InputError, run_command
from traces.parquet import write_parquet

ROOT = Path(__file__).parents[2]
PLAIN_S, PER_TOKEN_S, DRAFT_S, HOST_S = 0.009, 0.001, 0.001, 0.002


def profile() -> Profile:
    """Target: 9 ms + 1 ms a token; draft: 1 ms a pass; host: 2 ms a step."""
    model = Model("target-7b", "some/target-7b", 7_000_000_000, 14_000_000_000, 131072, "bfloat16", 1)
    residual = {"points": 2, "median_percent": 1.25, "p95_percent": 3.0, "worst_percent": 4.5}
    return Profile(
        name="pair",
        device="some CPU",
        device_memory_bytes=16_000_000_000,
        engine="draftlab 0.1",
        target_model=model,
        draft_model=dataclasses.replace(model, name="draft-1b", parameters=1_000_000_000),
        draft_kind="autoregressive",
        num_kv_blocks=100,
        block_size=16,
        target=ForwardCost.affine(PLAIN_S, PER_TOKEN_S),
        draft=ForwardCost.affine(DRAFT_S),
        host=HostCost(HOST_S, 0.0, "measured"),
        versions={"torch": "2.13"},
        provenance={"forward": "measured here"},
        residuals={"target": {"held_out": residual, "spread": {"repeats_percent": 2.5, "visits_percent": 3.0}}},
    )


def points() -> pd.DataFrame:
    rows = [
        {"model": model, "phase": "decode" if q == 1 else "verify", "num_seqs": b, "query_tokens": q}
        | {"context_tokens": context, "seconds": 0.01, "p10": 0.0099, "p90": 0.0102, "repeats": 5}
        for model in ("target", "draft")
        for b in (1, 2, 4)
        for q in (1, 5)
        for context in (16, 64, 128)
    ]
    return pd.DataFrame(rows)


def windows(accept: Any = ((1, 1), (0, 1), (1, 0)), start: Any = (0,), task: tuple[str, ...] = ("chat",)) -> Windows:
    table = np.array(accept, np.float32)
    signals = {"kld": 1 - table, "draft_entropy": np.full_like(table, 0.5)}
    return Windows("test", "measured", table, signals, {}, np.array(start, np.int64), task)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    directory = tmp_path / "calibration"
    profile().save(directory, points())
    windows(np.full((40, 4), 0.5), (0, 20), ("chat", "code")).save(directory)
    return directory


def printed(directory: Path, width: int = 80) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(overview(figures(read(directory))))
    return file.getvalue()


def test_acceptance_length_follows_the_engine() -> None:
    """Greedy rows 11, 01, 10. k = 2: row 0 accepts both and ends the text at row 3: one step of length 3.

    k = 1: row 0 accepts 1, next is row 2, which accepts 1: two steps of length 2. Row 1 is never the start of a step.
    """
    assert acceptance_lengths(windows()) == [2.0, 3.0]


def test_acceptance_length_of_independent_tokens() -> None:
    # E[emitted] = (1 - a^(k+1)) / (1 - a) at a = .8
    found = acceptance_lengths(windows(np.full((60, 8), 0.8), (0, 7, 30), ("a", "b", "c")))
    assert found == pytest.approx([(1 - 0.8 ** (k + 1)) / 0.2 for k in range(1, 9)])


def test_acceptance_length_weighs_chances() -> None:
    """Two rows, k = 1, accept .5 and 1. A step at row 0 has length 1.5; half the time one at row 1 follows, length 2.

    (1.5 + .5 * 2) / 1.5 = 5/3.
    """
    assert acceptance_lengths(windows([[0.5], [1.0]])) == pytest.approx([5 / 3])


def test_acceptance_by_depth() -> None:
    # first: 2 of 3; both: 1 of 3, which is half of those that got there
    accepted, reached = by_depth(windows())
    assert (accepted, reached) == (pytest.approx([2 / 3, 1 / 3]), pytest.approx([2 / 3, 1 / 2]))


def test_depth_that_is_never_reached_is_undefined() -> None:
    assert by_depth(windows([[0, 1]]))[1] == [0.0, None]


def test_standard_error_takes_trajectories_as_the_sample() -> None:
    # means 1 and 0 of two equally long texts: sd of the mean = sqrt(((.5)^2 + (.5)^2) / 1 / 2) = .5
    assert mean_acceptance(windows([[1], [1], [0], [0]], (0, 2), ("a", "a"))) == (0.5, 0.5)


def test_one_text_has_no_standard_error() -> None:
    assert mean_acceptance(windows())[1] is None


def test_tasks_are_taken_apart() -> None:
    found = of_task(windows([[1], [0], [0.5], [1]], (0, 1, 3), ("a", "b", "a")), "a")
    assert (found.accept[:, 0].tolist(), found.start.tolist()) == ([1, 1], [0, 1])


def test_correlation_with_a_signal_that_mirrors_acceptance() -> None:
    assert correlations(windows())["kld"] == pytest.approx(-1)  # the signal is 1 - acceptance


def test_correlation_with_a_constant_is_undefined() -> None:
    assert correlations(windows())["draft_entropy"] is None


def test_mean_kld_before_looks_back_ten_tokens() -> None:
    """KLD is 1 once in every 11 tokens, where the token is rejected.

    The 10 before it hold none, the 10 before any other hold one: the mean is 0 and .1, a correlation of 1.
    """
    accept = np.array([[float(i % 11 > 0)] for i in range(90)])
    assert correlations(windows(accept))["mean KLD before"] == pytest.approx(1)


def test_short_texts_have_no_history() -> None:
    assert correlations(windows())["WVIR before"] is None


def test_classes_rise_with_the_signal() -> None:
    table = np.linspace(0, 1, 120, dtype=np.float32)[:, None]
    signal, accepted = binned(windows(table), "kld")  # kld = 1 - acceptance
    assert signal + accepted == pytest.approx(np.ones(12))


def test_break_even_length(whole: Path) -> None:
    # B = 1, k = 4: 4 draft passes, 9 + 5 ms, host 2 ms = 20 ms against 9 + 1 + 2 = 12 ms
    row = figures(read(whole))["costs"]["speculation"][0]
    assert row["break_even_length"]["4"] == pytest.approx(20 / 12)


def test_speed_up_and_best_k(whole: Path) -> None:
    """a = .5; lengths 1.5, 1.75, 1.875, 1.9375; steps of 14, 16, 18, 20 ms against 12: 1.29, 1.31, 1.25, 1.16."""
    row = figures(read(whole))["costs"]["speculation"][0]
    assert list(row["speed_up"].values()) == pytest.approx([18 / 14, 21 / 16, 1.25, 1.1625])
    assert (row["best_k"], row["break_even_k"]) == (2, 4)


def test_speculation_that_never_pays(tmp_path: Path) -> None:
    profile().save(tmp_path / "a", points())
    windows(np.zeros((5, 2))).save(tmp_path / "a")
    row = figures(read(tmp_path / "a"))["costs"]["speculation"][0]
    assert (row["best_k"], row["break_even_k"]) == (0, 0)


@pytest.mark.parametrize(("kind", "expected_s"), [("autoregressive", 0.003), ("parallel", 0.001), ("ngram", 0.001)])
def test_draft_time_by_kind(kind: str, expected_s: float) -> None:
    from calibrate.payoff import draft_seconds

    assert draft_seconds(dataclasses.replace(profile(), draft_kind=kind), 1, 3, 64) == pytest.approx(expected_s)


def test_costs_stand_at_the_middle_context(whole: Path) -> None:
    assert figures(read(whole))["costs"]["context_tokens"] == 64


def test_costs_stand_where_most_was_measured(whole: Path) -> None:
    more = points().query("context_tokens == 128").assign(num_seqs=8)
    write_parquet(whole / "forward.parquet", pd.concat([points(), more]))
    assert figures(read(whole))["costs"]["context_tokens"] == 128


def test_batches_and_queries_are_measured_ones(whole: Path) -> None:
    rows = figures(read(whole))["costs"]["passes"]
    assert [(row["num_seqs"], list(row["target_ms"])) for row in rows] == [(b, ["1", "2", "3", "5"]) for b in (1, 2, 4)]


def test_spread_of_repeats(whole: Path) -> None:
    # (10.2 - 9.9) / 10 ms
    assert figures(read(whole))["measured_points"][0] == {
        "model": "target",
        "phase": "all",
        "points": 18,
        "p10_to_p90_percent": 3.0,
    }


def test_passes_beyond_the_measured_ones_are_marked(tmp_path: Path) -> None:
    measured = MeasuredRange(new_tokens=10, kv_tokens=1000, num_seqs=4)
    target = dataclasses.replace(profile().target, measured=measured)
    dataclasses.replace(profile(), target=target).save(tmp_path / "a", points())
    text = printed(tmp_path / "a")
    assert "29.0*" in text  # B = 4, q = 5: 9 + 20 ms of 20 tokens
    assert "extrapolated" in text


@pytest.mark.parametrize("width", [80, 120])
def test_table_is_ascii_and_fits(whole: Path, width: int) -> None:
    text = printed(whole, width)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    "words",
    [
        "target-7b, 7,000 M parameters, 14.0 GB, bfloat16",
        "some CPU, 16.0 GB; draftlab 0.1",
        "1,600 tokens (100 blocks of 16)",
        "torch 2.13",
        "measured here",
        "held out |      2 |    1.2 | 3.0 |   4.5",
        "target: spread of repeats 2.5 % within a visit, 3.0 % between visits",
        "2 trajectories, 40 windows of 4",
        "acceptance length | 1.50 | 1.75 | 1.88 | 1.94",
        "chat | 1 | 50.0% | - | 1.50 | 1.75 | 1.94",
    ],
)
def test_table_says(whole: Path, words: str) -> None:
    text = " ".join(printed(whole, 200).split())
    assert " ".join(words.split()) in text


def test_json_is_all_that_is_printed(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(whole), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["acceptance"]["mean_acceptance"] == 0.5


@pytest.mark.parametrize(
    ("name", "lost", "kept"),
    [
        ("profile.json", "costs", "acceptance"),
        ("cost.json", "profile", "acceptance"),
        ("forward.parquet", "measured_points", "costs"),
        ("acceptance.parquet", "acceptance", "costs"),
    ],
)
def test_a_missing_part_is_skipped_and_said(whole: Path, name: str, lost: str, kept: str) -> None:
    (whole / name).unlink()
    shown = figures(read(whole))
    assert shown[lost] is None
    assert shown[kept] is not None
    assert f"{name} is missing" in " ".join(printed(whole).split())


@pytest.mark.parametrize("name", ["cost.json", "forward.parquet", "acceptance.parquet"])
def test_a_figure_without_a_part(whole: Path, name: str, tmp_path: Path) -> None:
    (whole / name).unlink()
    found = read(whole)
    plot(found, figures(found), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").stat().st_size > 0


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_same_calibration_same_bytes(whole: Path, kind: str, tmp_path: Path) -> None:
    found = read(whole)
    for name in "ab":
        plot(found, figures(found), tmp_path / f"{name}.{kind}")
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_panels(whole: Path) -> None:
    found = read(whole)
    titles = [axes.get_title(loc="left") for axes in figure(found, figures(found)).axes]
    assert titles == [
        "Cost of the target at 64 cached tokens",
        "Cost of the draft at 64 cached tokens",
        "Speed-up against plain decoding",
        "Acceptance by depth",
        "Acceptance by task",
        "Signal against acceptance",
    ]


def test_names_that_the_font_lacks(whole: Path, tmp_path: Path) -> None:
    dataclasses.replace(profile(), device="対話 $x^2$ é").save(whole)
    found = read(whole)
    plot(found, figures(found), tmp_path / "a.png")


def test_plot_needs_no_display(whole: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from calibrate.show import main; main(sys.argv[1:]); assert 'matplotlib.pyplot' not in sys.modules"
    )
    environment = {k: v for k, v in os.environ.items() if k != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    command = [sys.executable, "-c", code, str(whole), "--json", "--plot", str(tmp_path / "a.png")]
    subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True, timeout=60)


def test_torch_is_not_imported(whole: Path) -> None:
    code = "import sys; from calibrate.show import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, str(whole)], check=True, cwd=ROOT, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "absent: no such directory"),
        (["."], "holds no calibration; expected profile.json, cost.json, forward.parquet, acceptance.parquet"),
        ([".", "--plot", "a.gif"], "unknown kind of picture '.gif'"),
        ([".", "--context-tokens", "-1"], "--context-tokens -1: expected a whole number of at least 0"),
        ([], "Missing"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(lambda: main(arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_points_without_a_column(whole: Path) -> None:
    write_parquet(whole / "forward.parquet", points().drop(columns="p90"))
    with pytest.raises(InputError, match=r"forward\.parquet: column p90 is missing"):
        read(whole)
