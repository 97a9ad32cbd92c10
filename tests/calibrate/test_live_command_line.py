"""python -m calibrate.live: its files, what interrupts it, and what it says to wrong options."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from traces.errors import run_command

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.live import __main__ as command
    from calibrate.live.executor import LiveExecutor
    from sim.results import read_results

SIZES = ["--num-prompts", "6", "--output-len", "12", "--max-num-seqs", "3"]
SMALL = [*SIZES, "--policy", "fixed:k=3"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def live(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["calibrate.live", *args])
    return run_command(command.main)


def lines(directory: Path) -> list[dict[str, Any]]:
    text = (directory / "outputs.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_files_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    assert live(monkeypatch, *SMALL, "--request-rate", "50", "--output-dir", str(out), "--save-detailed") == 0
    saved = read_results(out)
    assert saved.metrics["backend"] == "draftlab-live"
    assert saved.metrics["completed"] == 6
    assert saved.steps is not None
    assert sorted(line["request_id"] for line in lines(out)) == list(range(6))
    for line in lines(out):
        row = saved.requests.iloc[line["request_id"]]
        assert row["output_tokens"] == len(line["output_tokens"])
        assert row["finish_reason"] == line["finish_reason"]
    assert "the wall clock" in capsys.readouterr().out


def test_steps_on_the_wall_clock_add_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All arrive at once: no idle stretch, so that the steps tile the time from 0 to the end."""
    out = tmp_path / "run"
    assert live(monkeypatch, *SMALL, "--output-dir", str(out), "--save-detailed") == 0
    steps = read_results(out).steps
    assert steps is not None
    parts = steps[["draft_s", "verify_s", "prefill_s", "host_s"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx((steps["end_s"] - steps["start_s"]).to_numpy(), abs=1e-6)
    assert steps["start_s"].to_numpy()[1:] == pytest.approx(steps["end_s"].to_numpy()[:-1], abs=1e-9)


def fail_in_step(monkeypatch: pytest.MonkeyPatch, step: int, error: BaseException) -> None:
    run, count = LiveExecutor.run, 0

    def failing(self: LiveExecutor, *args: Any) -> Any:
        nonlocal count
        count += 1
        if count > step:
            raise error
        return run(self, *args)

    monkeypatch.setattr(LiveExecutor, "run", failing)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RuntimeError("CUDA error: device-side assert"), 2, "error: the models failed: RuntimeError: CUDA error"),
        (torch.OutOfMemoryError("CUDA out of memory"), 2, "error: out of memory while serving"),
        (KeyboardInterrupt(), 130, "interrupted: figures of none cover"),
    ],
)
def test_what_was_finished_is_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any, error: BaseException, status: int, said: str
) -> None:
    """Three slots, 12 tokens a text, one a step: after 15 steps the first three are done and the others are not."""
    fail_in_step(monkeypatch, 15, error)
    out = tmp_path / "run"
    assert live(monkeypatch, *SIZES, "--policy", "none", "--ignore-eos", "--output-dir", str(out)) == status
    assert read_results(out).metrics["completed"] == len(lines(out)) == 3
    said_lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("loading ")]
    assert len(said_lines) == 1
    assert said_lines[0].startswith(said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--clock", "model"], "--clock model needs --profile"),
        (["--save-detailed"], "--save-detailed writes into --output-dir"),
        (["--policy", "nothing"], "nothing"),
        (["--range-ratio", "0.5"], "--range-ratio applies to a trace of lengths"),
        (["--max-model-len", "1020"], "give --max-model-len 1008 or less"),
        (["--policy", "oracle"], "only a replay knows"),
        (["--policy", "goodput"], "give --profile"),
    ],
)
def test_wrong_options_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Any, args: list[str], said: str) -> None:
    assert live(monkeypatch, "--num-prompts", "2", *args) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(error) == 1
    assert said in error[0]


def test_a_trace_of_lengths_is_filled_with_text(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    trace = ["--trace", "random", "--input-len", "30", "--output-len", "4", "--num-prompts", "3", "--json"]
    assert live(monkeypatch, *trace, "--policy", "none", "--ignore-eos") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (90, 12)
