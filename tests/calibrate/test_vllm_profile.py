from __future__ import annotations

import json

import numpy as np
import pytest

from calibrate import show
from calibrate.vllm import costs
from calibrate.vllm.__main__ import main, read
from calibrate.vllm.bench import read_bench
from calibrate.vllm.log import read_log
from calibrate.vllm.profile import build
from sim.replay.profile import Profile
from sim.replay.sources import acceptance_source
from tests.calibrate import vllm_files as files
from traces.errors import InputError


def test_the_targets_law_is_found(tmp_path):
    # 50 ms + 2 ms a token + 1 ms a sequence, at sizes that the log does not hold: 5 sequences that verify 4 tokens each
    told = read([files.plain_log(tmp_path / "s.log")], [])
    target = build(told, name="p").profile.target
    assert 1e3 * target.seconds(20, 100, 100, 5) == pytest.approx(50 + 2 * 20 + 5, rel=0.06)


def test_the_errors_of_steps_are_shown(tmp_path):
    told = read([files.plain_log(tmp_path / "s.log")], [])
    assert build(told, name="p").errors["target alone"]["mean_percent"] < 1  # the law has no noise


def test_the_draft_takes_what_the_target_leaves(tmp_path):
    logs = [files.plain_log(tmp_path / "s.log"), files.drafting_log(tmp_path / "d.log")]
    measured = build(read(logs, []), name="p")
    draft = measured.profile.draft
    # a pass over 4 sequences takes 4 ms and half a millisecond for each token
    assert 1e3 * draft.seconds(4, 0, 0, 4) == pytest.approx(6, rel=0.15)
    assert measured.errors["with drafts"]["mean_percent"] < 2
    assert measured.profile.draft_kind == "autoregressive"


def test_a_draft_that_costs_nothing_is_refused(tmp_path):
    # the same steps as the target alone would make: the log of a look-up, taken for that of a model
    lines = [files.step_line(i, 0, 0, 1 + i % 8, 4 + 4 * (i % 8), 30) for i in range(40)]
    logs = [files.plain_log(tmp_path / "s.log"), files.write(tmp_path / "n.log", "".join(lines))]
    with pytest.raises(InputError, match="no cost of a draft"):
        build(read(logs, []), name="p")


def test_a_look_up_needs_no_log_without_speculation(tmp_path):
    log = files.drafting_log(tmp_path / "n.log")
    profile = build(read([log], []), name="p", draft_kind="ngram").profile
    assert profile.draft_kind == "ngram"


def test_only_steps_that_draft_tell_nothing_of_the_target(tmp_path):
    with pytest.raises(InputError, match="no step of the target alone"):
        build(read([files.drafting_log(tmp_path / "d.log")], []), name="p")


def test_host_time_is_what_clients_waited_beyond_the_steps(tmp_path):
    # the run of `closed_loop` takes 348 ms; the engine says its five steps took 2 ms less each, after a warm-up request
    bench = read_bench(files.closed_loop(tmp_path / "b.json"))
    shapes = [(1, 8, 0, 0), (0, 0, 1, 1), (1, 20, 0, 0), (1, 40, 1, 1), (0, 0, 2, 2), (0, 0, 2, 2), (0, 0, 1, 1)]
    ms = [60, 50, 72, 97, 58, 58, 53]
    text = "".join(files.step_line(i, *shape, ms[i]) for i, shape in enumerate(shapes))
    log = read_log(files.write(tmp_path / "s.log", text))
    found = costs.host_seconds(log, bench)
    assert found is not None
    assert (found[0], found[1]) == (pytest.approx(0.002), slice(2, 7))


def test_a_run_of_another_server_is_not_in_the_log(tmp_path):
    log = read_log(files.plain_log(tmp_path / "s.log"))
    assert costs.stretch(log, read_bench(files.closed_loop(tmp_path / "b.json"))) is None


def test_runs_of_equal_requests_are_told_apart_by_the_clock(tmp_path):
    # the same run twice in one log, at 19:16:11 (what `step_line` says) and two minutes later; results say when
    shapes = [(1, 20, 0, 0), (1, 40, 1, 1), (0, 0, 2, 2), (0, 0, 2, 2), (0, 0, 1, 1)]
    once = "".join(files.step_line(i, *shape, ms) for i, (shape, ms) in enumerate(zip(shapes, [60] * 5, strict=True)))
    text = once + once.replace("19:16:11", "19:18:11")
    log = read_log(files.write(tmp_path / "s.log", text))
    for date, found in (("191612", slice(0, 5)), ("191812", slice(5, 10)), ("200000", None)):
        bench = json.loads(files.closed_loop(tmp_path / "b.json").read_text("utf-8"))
        path = files.write(tmp_path / "b.json", json.dumps(bench | {"date": f"20261130-{date}"}))
        assert costs.stretch(log, read_bench(path)) == found


def test_prompts_that_a_cache_held_are_noticed(tmp_path):
    # the clients sent 20 + 40 prompt tokens, the engine computed 20 + 8
    bench = files.closed_loop(tmp_path / "b.json")
    shapes = [(1, 20, 0, 0), (1, 8, 1, 1), (0, 0, 2, 2), (0, 0, 2, 2), (0, 0, 1, 1)]
    text = "".join(files.step_line(i, *shape, files.law_ms(*shape)) for i, shape in enumerate(shapes))
    measured = build(read([files.write(tmp_path / "s.log", text)], [bench]), name="p")
    assert "28 prompt tokens were computed, 60 expected" in measured.gaps[0]


def test_a_bench_alone_gives_costs(tmp_path):
    told = read([], [files.closed_loop(tmp_path / "b.json")])
    measured = build(told, name="p")
    assert "told by when clients saw tokens" in measured.profile.provenance["target"]
    assert measured.profile.host.base_s == 0  # within the steps
    assert measured.profile.provenance["kv pool"].startswith("assumed")


def test_warm_runs_need_a_block_size(tmp_path):
    path = files.closed_loop(tmp_path / "b.json")
    with pytest.raises(InputError, match="block size"):
        build(read([], [], [path]), name="p")


def test_the_command_writes_what_sim_reads(tmp_path, capsys):
    paths = [files.plain_log(tmp_path / "s.log"), files.write(tmp_path / "m.txt", files.scrape_text())]
    output = tmp_path / "made"
    assert main(["--log", str(paths[0]), "--metrics", str(paths[1]), "--output", str(output)]) == 0
    profile, windows = Profile.load(output), acceptance_source(str(output))
    assert profile.engine == "vllm 0.32.0"
    assert (profile.num_kv_blocks, profile.block_size) == (256, 16)  # 4096 tokens
    assert np.allclose(windows.accept[0, :2], [0.8, 0.5])
    shown = capsys.readouterr().out
    show.main([str(output)])  # the points beside it are of the layout of other calibrations
    assert "models: assumed" in shown
    assert "host: assumed" in shown


@pytest.mark.parametrize("arguments", [[], ["--log", "nowhere.log"]])
def test_wrong_command_lines_end_in_one_line(arguments, capsys):
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
