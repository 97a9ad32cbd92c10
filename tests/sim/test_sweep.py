"""`sim.sweep` on one process: what runs, what is kept, what the table holds."""

from __future__ import annotations

import json
import sys

import pandas as pd
import pytest

from sim.config import SimConfig
from sim.results import plain
from sim.simulate import simulate
from sim.sweep import expand, read, runner, sweep
from sim.sweep.__main__ import main
from sim.sweep.axes import flags, values_of
from sim.sweep.journal import JOURNAL
from sim.sweep.run import Task
from tests.sim.sweeps import BASE, FAILS, grid, small, table_bytes
from traces.command import parse
from traces.errors import InputError, run_command

ARGUMENTS = ["--trace", "random", "--input-len", "50", "--output-len", "20", "--num-prompts", "12"]
ARGUMENTS += ["--acceptance", "regimes", "--jobs", "1"]


def parsed(*arguments: str):
    return values_of(parse(flags(), "sim.sweep", "", arguments))


def test_every_flag_of_sim_takes_several_values():
    values = parsed("--policy", "none", "fixed:k=2", "--seed", "3", "4", "--request-rate", "1", "inf")
    assert (values["policy"], values["seed"], values["request_rate"]) == (("none", "fixed:k=2"), (3, 4), ("1", "inf"))


def test_settings_that_are_lists_are_one_value():
    assert parsed("--goodput", "ttft:500", "tpot:50")["goodput"] == (("ttft:500", "tpot:50"),)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], (False,)), (["--oversample"], (True,)), (["--oversample", "True", "False"], (True, False))],
)
def test_switches(arguments, expected):
    assert parsed(*arguments)["oversample"] == expected


def test_the_default_of_every_setting_is_that_of_sim():
    (config,) = expand(parsed())
    assert config == runner.resolved(SimConfig())


def test_the_product_has_seeds_innermost_and_the_baseline_first():
    configs = grid(request_rate=("4", "8"), policy=("fixed:k=1", "fixed:k=2"), seed=(0, 1))
    assert len(configs) == 2 * 2 * 2
    assert [each.seed for each in configs] == [0, 1] * 4
    with_baseline = expand({"policy": ("fixed:k=1", "fixed:k=2"), "seed": (0, 1)}, "none")
    runs = [("none", 0), ("none", 1), ("fixed:k=1", 0), ("fixed:k=1", 1), ("fixed:k=2", 0), ("fixed:k=2", 1)]
    assert [(each.policy, each.seed) for each in with_baseline] == runs


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"policy": "none", "seed": range(3)}, 3),
        ({"goodput": ["ttft:500", "tpot:50"]}, 1),  # one SLO of two limits
        ({"goodput": [["ttft:500"], ["ttft:900"]]}, 2),
    ],
)
def test_one_value_needs_no_brackets(axes, expected):
    assert len(expand(axes)) == expected


def test_a_setting_that_does_not_exist():
    with pytest.raises(InputError, match="no setting is called policies"):
        expand({"policies": ["none"]})


def test_caps_of_the_policies_are_named_and_doubles_run_once():
    # dsde's own cap is mean: the default and `mean` are one run
    configs = expand({"policy": ("dsde",), "cap": (None, "mean", "none")})
    assert [each.cap for each in configs] == ["mean", "none"]


def test_a_row_holds_the_figures_of_a_single_run(tmp_path):
    (row,) = sweep([BASE], tmp_path, jobs=1).to_dict("records")
    alone = simulate(BASE)
    for name, value in plain(alone.metrics).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert row[name] == value, name


def test_the_settings_of_a_row_repeat_it(tmp_path):
    (row,) = sweep([BASE], tmp_path, jobs=1).to_dict("records")
    assert (row["policy"], row["seed"], row["request_rate"], row["request_rate_rps"]) == ("dsde", 0, "8", 8.0)
    assert (row["cap"], row["acceptance_rule"]) == ("mean", "lossless")


def test_pandas_reads_the_table_in_one_line(tmp_path):
    frame = sweep(small(), tmp_path, jobs=1)
    assert pd.read_parquet(tmp_path / "runs.parquet")["mean_tpot_ms"].equals(frame["mean_tpot_ms"])


def test_a_failed_run_is_a_row_with_its_error(tmp_path):
    frame = sweep(small(), tmp_path, jobs=1)
    failed = frame[frame["error"].notna()]
    assert list(failed["policy"]) == [FAILS, FAILS]
    assert failed["error"].iloc[0] == "policy fixed: k is -1, expected 0 or more"
    assert failed["mean_tpot_ms"].isna().all()


def test_an_error_of_the_code_is_a_row_too(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr("sim.sweep.run.simulate", broken)
    (error,) = sweep([BASE], tmp_path, jobs=1)["error"]
    assert error.startswith("RuntimeError: boom (test_sweep.py:")


def counted(monkeypatch) -> list[str]:
    """The keys of what runs from now on."""
    ran: list[str] = []
    execute = runner.execute

    def counting(task, key):
        ran.append(key)
        return execute(task, key)

    monkeypatch.setattr(runner, "execute", counting)
    return ran


def test_only_what_is_missing_runs(tmp_path, monkeypatch):
    sweep(small(seeds=(0,)), tmp_path, jobs=1)
    ran = counted(monkeypatch)
    frame = sweep(small(seeds=(0, 1)), tmp_path, jobs=1)
    assert len(ran) == 2
    assert list(frame["seed"]) == [0, 1, 0, 1]  # of each policy


def test_failures_run_again_only_when_asked(tmp_path, monkeypatch):
    sweep(small(), tmp_path, jobs=1)
    ran = counted(monkeypatch)
    sweep(small(), tmp_path, jobs=1)
    assert len(ran) == 0
    sweep(small(), tmp_path, jobs=1, retry_failed=True)
    assert len(ran) == 2


def test_a_run_cut_off_in_the_journal_runs_again_and_the_table_is_the_same(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    sweep(small(), whole, jobs=1)
    sweep(small(), cut, jobs=1)
    journal = cut / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:1]) + lines[1][:40])  # as a crash in the middle of the second line leaves it
    sweep(small(), cut, jobs=1)
    assert table_bytes(cut) == table_bytes(whole)
    assert len(journal.read_bytes().splitlines()) == len(lines)


def test_an_interrupt_keeps_what_is_finished(tmp_path, monkeypatch):
    execute, calls = runner.execute, []

    def interrupted(task, key):
        calls.append(key)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return execute(task, key)

    monkeypatch.setattr(runner, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(small(), tmp_path / "cut", jobs=1)
    assert len(read(tmp_path / "cut")) == 2
    sweep(small(), tmp_path / "cut", jobs=1)
    sweep(small(), tmp_path / "whole", jobs=1)
    assert table_bytes(tmp_path / "cut") == table_bytes(tmp_path / "whole")


def test_a_run_that_ctrl_c_ended_early_is_no_row(tmp_path, monkeypatch):
    def early(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.cluster.Cluster.run", early)  # serve() ends well, with what had happened by then
    with pytest.raises(KeyboardInterrupt):
        sweep([BASE], tmp_path, jobs=1)
    assert (tmp_path / JOURNAL).read_bytes() == b""


def test_other_code_or_another_input_file_is_another_run(tmp_path, monkeypatch):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,5\n")
    config = SimConfig(trace=str(trace))
    first = Task.of(config).key
    assert Task.of(config).key == first
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,6\n")
    second = Task.of(config).key
    monkeypatch.setattr("sim.sweep.run.code_digest", lambda: "other")
    assert len({first, second, Task.of(config).key}) == 3


def test_two_sweeps_in_one_directory_are_kept_apart(tmp_path):
    with runner.Journal(tmp_path), pytest.raises(InputError, match="another sweep"):
        sweep([BASE], tmp_path, jobs=1)


def test_a_file_that_is_no_journal(tmp_path):
    (tmp_path / JOURNAL).write_text("hello\n")
    with pytest.raises(InputError, match="line 1 is no run"):
        sweep([BASE], tmp_path, jobs=1)


def test_a_directory_without_a_table(tmp_path):
    with pytest.raises(InputError, match=r"runs\.parquet: no such file"):
        read(tmp_path)


def command(monkeypatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["sim.sweep", *ARGUMENTS, *map(str, arguments)])
    return run_command(main)


def test_the_command_prints_means_and_paired_differences(monkeypatch, capsys, tmp_path):
    options = ["--policy", "fixed:k=2", "--request-rate", "8", "--seed", "0", "1", "--baseline", "none"]
    assert command(monkeypatch, *options, "--output-dir", tmp_path) == 0
    out = capsys.readouterr().out
    assert "4 runs, 0 failed" in out  # none and fixed:k=2, two seeds each
    assert "TPOT against none" in out
    assert "95 % intervals over 2 seeds" in out


def test_a_sweep_with_failures_says_so(monkeypatch, capsys, tmp_path):
    assert command(monkeypatch, "--policy", "none", FAILS, "--output-dir", tmp_path) == 1
    captured = capsys.readouterr()
    assert "2 runs, 1 failed" in captured.out
    assert captured.err == "failed: policy fixed: k is -1, expected 0 or more\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--policy", "nix"], "unknown policy"),
        (["--policy", "none", "--baseline", "nix"], "unknown policy"),
        (["--jobs", "0"], "--jobs 0"),
        (["--address", "tcp://127.0.0.1:1"], "--backend dask or ray"),
        (["--seed", "one"], "--seed"),
        (["--backend", "slurm"], "--backend"),
        (["--json"], "--json"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(monkeypatch, capsys, tmp_path, arguments, expected):
    assert command(monkeypatch, *arguments, "--output-dir", tmp_path) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert expected in captured.err


def test_the_journal_holds_one_line_a_run(tmp_path):
    sweep(small(), tmp_path, jobs=1)
    rows = [json.loads(line) for line in (tmp_path / JOURNAL).read_text().splitlines()]
    assert len({row["run"] for row in rows}) == len(rows) == 4
