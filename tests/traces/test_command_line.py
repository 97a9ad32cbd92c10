"""python -m traces: what it prints, what it writes, and one line for every mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.traces.samples import TEXTS, write
from traces import load
from traces.__main__ import main
from traces.errors import run_command
from traces.formats import FORMATS
from traces.named import NAMES


def run(*args: object) -> int:
    return run_command(lambda: main([str(arg) for arg in args]))


def test_list_names_every_trace_and_format(capsys):
    assert run("list") == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in (*NAMES, "random", *FORMATS))


def test_list_as_json(capsys):
    run("list", "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed["traces"]] == list(NAMES)
    assert all(entry["source"] and entry["licence"] for entry in listed["traces"])


def test_describe_takes_the_trace_first_or_by_flag(capsys):
    run("describe", "gsm8k", "--num-prompts", "5")
    positional = capsys.readouterr().out
    run("describe", "--num-prompts", "5", "--trace", "gsm8k")
    assert capsys.readouterr().out == positional


def test_describe_as_json_is_json_and_nothing_else(capsys):
    assert run("describe", "burstgpt", "--num-prompts", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 5


def test_describe_of_a_file_counts_dropped_rows(tmp_path, capsys):
    run("describe", write(tmp_path, "prompt_tokens,output_tokens\n5,0\n5,5\n"))
    assert "1: 0 output tokens" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["azure", "burstgpt", "mooncake", "vllm-timed", "lengths"])
def test_convert_writes_what_load_reads(tmp_path, name):
    source, target = write(tmp_path, TEXTS["azure"]), tmp_path / "out.gz"
    assert run("convert", source, "--to", name, "--output", target) == 0
    assert load(target).prompt_tokens.tolist() == [100, 300]


def test_convert_names_what_is_lost(tmp_path, capsys):
    run("convert", write(tmp_path, TEXTS["mooncake"]), "--to", "azure", "--output", tmp_path / "out.csv")
    assert capsys.readouterr().out.endswith("out.csv: 2 requests as azure, without prefix blocks\n")


def test_convert_of_a_bad_file_writes_nothing(tmp_path, capsys):
    source = write(tmp_path, TEXTS["azure"].replace("300", "x"))
    assert run("convert", source, "--to", "lengths", "--output", tmp_path / "out.csv") == 2
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["describe"], "which trace?"),
        (["describe", "nowhere.csv"], "no trace 'nowhere.csv'"),
        (["describe", "sharegpt", "--request-rate", "0"], "--request-rate 0: expected"),
        (["describe", "sharegpt", "--num-prompts", "many"], "--num-prompts many: expected a whole number"),
        (["describe", "sharegpt", "--burstiness", "much"], "--burstiness much: expected a number"),
        (["describe", "sharegpt", "--nonsense"], "--nonsense"),
        (["describe", "sharegpt", "--input-len", "5"], "--input-len applies only to the random trace"),
        (["describe", "sharegpt", "--plot", "figure.bmp"], "--plot figure.bmp: expected a file name that ends in .svg"),
        (["convert", "sharegpt"], "--output"),
        (["convert", "sharegpt", "--to", "parquet", "--output", "x"], "parquet"),
        (["convert", "sharegpt", "--to", "azure", "--output", "/nowhere/at/all.csv"], "/nowhere/at/all.csv"),
        (["frobnicate"], "unknown command 'frobnicate'"),
    ],
)
def test_mistake_is_one_line_and_status_two(args, message, capsys):
    assert run(*args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    assert message in captured.err


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", TEXTS)
def test_file_cut_anywhere_is_read_or_one_line(tmp_path, name, cut, capsys):
    path = write(tmp_path, TEXTS[name][: int(cut * len(TEXTS[name]))])
    status = run("describe", path)  # a cut may fall between two rows
    assert (status, capsys.readouterr().err.count("\n")) in [(0, 0), (2, 1)]


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
@pytest.mark.parametrize("rows", ["5,5\n", "5,5\n9,7\n"])
def test_plot_needs_no_display_and_no_spread(tmp_path, suffix, rows):  # F66
    figure = tmp_path / f"figure.{suffix}"
    path = write(tmp_path, "prompt_tokens,output_tokens\n" + rows)
    assert run("describe", path, "--plot", figure) == 0
    assert figure.stat().st_size > 1000


def test_plot_is_the_same_bytes_each_time(tmp_path):
    for name in ("a.svg", "b.svg"):
        run("describe", "gsm8k", "--num-prompts", "50", "--plot", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_process_with_a_foreign_backend_and_no_display(tmp_path):  # F66
    environment = {key: value for key, value in os.environ.items() if key != "DISPLAY"} | {"MPLBACKEND": "TkAgg"}
    command = [sys.executable, "-m", "traces", "describe", "gsm8k", "--plot", str(tmp_path / "figure.png")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_process_in_the_c_locale_reads_and_prints_utf8(tmp_path):  # F67
    path = write(tmp_path, '{"prompt": "日本語", "output_tokens": 3, "task": "math"}\n', "prompts.jsonl")
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "traces", "describe", str(path), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_mistake_is_named_whatever_box_the_terminal_can_draw(encoding):
    command = [sys.executable, "-m", "traces", "describe", "sharegpt", "--nonsense"]
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == "error: Unrecognized options: --nonsense (see python -m traces describe --help)\n"


def test_help_shows_every_option_of_a_workload(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["describe", "--help"])
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--trace", "--request-rate", "--burstiness", "--skip-requests", "--plot"))
