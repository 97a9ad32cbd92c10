"""`python -m sim` as a user meets it: what it prints, what it writes, and one line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim.__main__ import main
from sim.results import read_results
from traces.errors import run_command

SMALL = ["--trace", "random", "--input-len", "50", "--output-len", "20", "--num-prompts", "12"]


def sim(monkeypatch: pytest.MonkeyPatch, *args: object) -> int:
    monkeypatch.setattr(sys, "argv", ["sim", *map(str, args)])
    return run_command(main)


def shell(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, *args],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_json_is_all_that_is_printed(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL, "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["completed"] == 12
    assert captured.err == ""


def test_the_table_names_what_is_synthetic(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL) == 0
    assert "synthetic" in capsys.readouterr().out


def test_a_named_trace_is_called_sampled(monkeypatch, capsys):
    assert sim(monkeypatch, "--trace", "sharegpt", "--num-prompts", 5) == 0
    assert "sampled from" in capsys.readouterr().out


def test_baseline_stands_beside_the_policy(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL, "--policy", "fixed:k=2", "--baseline", "none", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["baseline"]["spec_decode_num_drafts"] == 0
    assert document["spec_decode_num_drafts"] > 0


def test_every_output_says_that_the_baseline_is_lossy(monkeypatch, tmp_path):
    import fastparquet

    assert sim(monkeypatch, *SMALL, "--policy", "none", "--baseline", "adasd", "--output-dir", tmp_path) == 0
    with (tmp_path / "requests.parquet").open("rb") as file:
        described = json.loads(fastparquet.ParquetFile(file).key_value_metadata["draftlab"])
    saved = read_results(tmp_path)
    assert {key: saved.metrics["baseline"][key] for key in ("policy", "cap", "acceptance_rule")} == {
        "policy": "adasd",
        "cap": "none",
        "acceptance_rule": "adasd",
    }
    for notes in (saved.provenance["notes"], described["provenance"]["notes"]):
        assert "baseline adasd: cap none, acceptance rule adasd" in notes
        assert any(note.startswith("baseline adasd: LOSSY: acceptance rule adasd") for note in notes)


@pytest.mark.parametrize("baseline", ["nix", "fixed:k=-1", "disable-by-batch:threshold=x"])
def test_a_wrong_baseline_is_found_before_anything_runs(monkeypatch, capsys, baseline):
    monkeypatch.setattr("sim.__main__.simulate", lambda *_: pytest.fail("ran"))
    assert sim(monkeypatch, *SMALL, "--baseline", baseline) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_directory_that_cannot_be_written_is_found_before_anything_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sim.__main__.simulate", lambda *_: pytest.fail("ran"))
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write anywhere
    assert sim(monkeypatch, *SMALL, "--output-dir", tmp_path / "a" / "b") == 2
    assert f"{tmp_path} cannot be written to" in capsys.readouterr().err


def test_results_are_written_and_read_back(monkeypatch, tmp_path):
    assert sim(monkeypatch, *SMALL, "--output-dir", tmp_path, "--save-detailed", "--timeline") == 0
    saved = read_results(tmp_path)
    assert len(saved.requests) == 12
    assert saved.steps is not None
    assert json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]


def test_a_plot_is_drawn_without_a_display(monkeypatch, tmp_path):
    monkeypatch.setenv("MPLBACKEND", "TkAgg")  # F66
    monkeypatch.delenv("DISPLAY", raising=False)
    assert sim(monkeypatch, *SMALL, "--plot", tmp_path / "run.svg") == 0
    assert (tmp_path / "run.svg").stat().st_size > 10_000


@pytest.mark.parametrize("option", ["policy", "cap", "acceptance-rule", "profile", "acceptance"])
def test_lists(monkeypatch, capsys, option):
    assert sim(monkeypatch, f"--{option}", "list") == 0
    assert len(capsys.readouterr().out.splitlines()) >= 4


def test_a_policy_of_ones_own(monkeypatch, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "from sim.policies import LengthPolicy\n"
        "class Two(LengthPolicy):\n"
        "    name = 'two'\n"
        "    def __init__(self, context, extra: int = 0):\n"
        "        self.max_length = 2 + extra\n"
        "    def lengths(self, batch):\n"
        "        return np.full(len(batch), self.max_length)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert sim(monkeypatch, *SMALL, "--policy", "mine:Two:extra=1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["mean_draft_length"] > 2


def own_policy(tmp_path, body):
    (tmp_path / "faulty.py").write_text(body)
    sys.modules.pop("faulty", None)


def test_a_policy_that_cannot_be_imported_is_one_line(monkeypatch, tmp_path, capsys):
    own_policy(tmp_path, "def broken(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sim(monkeypatch, *SMALL, "--policy", "faulty:Mine") == 2
    assert "SyntaxError" in capsys.readouterr().err


def test_lengths_must_be_whole_numbers(monkeypatch, tmp_path, capsys):
    own_policy(
        tmp_path,
        "import numpy as np\n"
        "from sim.policies import LengthPolicy\n"
        "class Mine(LengthPolicy):\n"
        "    name, max_length = 'mine', 3\n"
        "    def __init__(self, context):\n"
        "        pass\n"
        "    def lengths(self, batch):\n"
        "        return np.full(len(batch), 2.5)\n",
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert sim(monkeypatch, *SMALL, "--policy", "faulty:Mine") == 2
    assert "integers" in capsys.readouterr().err


def test_nothing_completed_is_said(monkeypatch, capsys):
    assert sim(monkeypatch, *SMALL, "--num-gpu-blocks", "1") == 0
    assert "no request of dsde was completed" in capsys.readouterr().err


MISTAKES = [
    (["--trace", "random", "--request-rate", "1e-300"], "so low"),
    (["--trace", "random", "--warmup-s", "5", "--until-s", "3"], "nothing to measure"),
    (["--trace", "no/such/file.csv"], "no/such/file.csv"),
    (["--trace", "random", "--policy", "nix"], "known: "),
    (["--trace", "random", "--policy", "fixed:k=-1"], "k is -1"),
    (["--trace", "random", "--policy", "fixed:q=1"], "options: k"),
    (["--trace", "random", "--policy", "fixed:k=two"], "'two' is no int"),
    (["--trace", "random", "--policy", "os:Nothing"], "os:Nothing"),
    (["--trace", "random", "--policy", "pathlib:Path"], "not a subclass"),
    (["--trace", "random", "--policy", "fixed:"], "expected options after the colon"),
    (["--trace", "random", "--policy", "fixed:k=99999999999999999999"], "at most 2147483647"),
    (["--trace", "random", "--draft-kind", "nix"], "autoregressive, eagle, early-exit, ngram, parallel"),
    (["--trace", "random", "--cap", ""], "--cap: expected a value"),
    (["--trace", "random", "--output-dir="], "--output-dir: expected a value"),
    (["--trace", "random", "--cap", "nix"], "unknown cap"),
    (["--trace", "random", "--profile", "nix"], "nix"),
    (["--trace", "random", "--acceptance", "nix"], "unknown acceptance"),
    (["--trace", "random", "--acceptance-rate", "2"], "expected 0 to 1"),
    (["--trace", "random", "--router", "nix"], "unknown router"),
    (["--trace", "random", "--request-rate", "0"], "--request-rate"),
    (["--trace", "random", "--num-prompts", "0"], "--num-prompts"),
    (["--trace", "random", "--num-gpu-blocks", "0"], "at least 1"),
    (["--trace", "random", "--block-size", "0"], "at least 1"),
    (["--trace", "random", "--block-size", "99999999999999999999", "--num-gpu-blocks", "9"], "at most 1000000"),
    (["--trace", "random", "--max-num-seqs", "0"], "at least 1"),
    (["--trace", "random", "--max-num-seqs", "100000000000"], "at most 1000000"),
    (["--trace", "random", "--skip-requests", "9999999999999999999"], "from 0 to 100000000"),
    (["--trace", "random", "--num-replicas", "0"], "at least 1"),
    (["--trace", "random", "--num-replicas", "100000000000"], "at most 10000"),
    (["--trace", "random", "--max-concurrency", "0"], "at least 1"),
    (["--trace", "random", "--think-time-s", "1"], "--max-concurrency"),
    (["--trace", "random", "--think-time-s", "1e300", "--max-concurrency", "1"], "at most 1e+09"),
    (["--trace", "random", "--temperature", "-1"], "0 or more"),  # F42
    (["--trace", "random", "--goodput", "itl:10"], "itl"),
    (["--trace", "random", "--until-s", "0"], "above 0"),
    (["--trace", "random", "--warmup-s", "-1"], "0 or more"),
    (["--trace", "random", "--enable-prefix-caching"], "share a prefix"),
    (["--trace", "random", "--timeline"], "--output-dir"),
    (["--trace", "random", "--save-detailed"], "--output-dir"),
    (["--trace", "random", "--plot", "run.xyz"], "run.xyz"),
    (["--trace", "random", "--seed", "-1"], "--seed"),
    (["--trace", "random", "--unknown-option", "3"], "unknown-option"),
    (["--trace", "random", "--max-num-seqs", "many"], "max-num-seqs"),
]


@pytest.mark.parametrize(("arguments", "expected"), MISTAKES, ids=lambda value: " ".join(value)[:40])
def test_a_mistake_is_one_line_and_status_2(monkeypatch, capsys, arguments, expected):
    assert sim(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert expected in captured.err


def test_a_mistake_leaves_nothing_behind(monkeypatch, tmp_path):
    assert sim(monkeypatch, "--trace", "random", "--policy", "nix", "--output-dir", tmp_path / "out") == 2
    assert list(tmp_path.iterdir()) == []


def test_an_output_directory_that_is_a_file(monkeypatch, tmp_path, capsys):
    (tmp_path / "out").write_text("x")
    assert sim(monkeypatch, *SMALL, "--output-dir", tmp_path / "out" / "run") == 2
    assert "expected a directory" in capsys.readouterr().err


def test_a_request_larger_than_the_pool_is_rejected_and_counted(monkeypatch, capsys):
    # 12 requests of 50 + 20 - 1 = 69 slots; 4 blocks of 16 hold 64
    assert sim(monkeypatch, *SMALL, "--num-gpu-blocks", 4, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["completed"], document["failed"]) == (0, 12)


def test_import_is_light():
    code = "import sys, sim.__main__; print(sorted({'torch', 'pandas', 'scipy', 'matplotlib'} & set(sys.modules)))"
    assert shell("-c", code).stdout.strip() == "[]"


def test_two_processes_write_the_same_bytes(tmp_path):
    for run, hash_seed in (("a", "0"), ("b", "1")):  # F65
        args = [
            *SMALL,
            "--policy",
            "dsde",
            "--acceptance",
            "regimes",
            "--output-dir",
            str(tmp_path / run),
            "--timeline",
        ]
        done = shell("-m", "sim", *args, "--save-detailed", PYTHONHASHSEED=hash_seed)
        assert done.returncode == 0, done.stderr
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["requests.parquet", "results.json", "steps.parquet", "timeline.json"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
