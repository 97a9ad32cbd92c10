"""python -m calibrate: a short run of the tiny pair drives the simulator; mistakes are one line."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest

from calibrate.__main__ import CalibrateConfig, main
from traces.errors import InputError, run_command


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"depth": 0}, "--depth 0"),
        ({"reconcile_k": 17}, "--reconcile-k 17"),  # windows of 16 by default
        ({"budget_s": 0.0}, "--budget-s 0"),
        ({"threads": 0}, "--threads 0"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, float], flag: str) -> None:
    with pytest.raises(InputError, match=flag):
        CalibrateConfig(**options)  # type: ignore[arg-type]


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["calibrate", *arguments])
    return run_command(main)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("transformers")
        from calibrate.calibration import calibrate
    output = tmp_path_factory.mktemp("run") / "tiny"
    config = CalibrateConfig(
        output=output, num_prompts=6, output_len=12, max_num_seqs=4, max_model_len=256, budget_s=4.0
    )
    calibrate(config, lambda line: None, lambda stage, done, total: None)
    return output


@pytest.mark.torch
def test_the_result_is_whole(calibration: Path) -> None:
    found = sorted(path.name for path in calibration.iterdir())
    parts = [
        "acceptance.parquet",
        "cost.json",
        "forward.parquet",
        "machine.json",
        "profile.json",
        "reconciliation.json",
    ]
    assert found == parts
    assert not calibration.with_name("tiny.partial").exists()


@pytest.mark.torch
def test_greedy_windows_are_the_live_run(calibration: Path) -> None:
    # greedy: the live run takes the very steps the windows predict, so the two means are one number
    checked = json.loads((calibration / "reconciliation.json").read_text(encoding="utf-8"))
    assert checked["live_length"] == checked["window_length"] or checked["near_ties"]


@pytest.mark.torch
def test_the_profile_drives_the_simulator(calibration: Path) -> None:
    from sim.config import SimConfig
    from sim.simulate import simulate

    directory = str(calibration)
    run = simulate(SimConfig(trace="gsm8k", num_prompts=5, request_rate="1", profile=directory, acceptance=directory))
    assert run.metrics["completed"] == 5


@pytest.mark.torch
def test_other_options_do_not_go_on_with_unfinished_work(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from calibrate.calibration import Partial

    Partial(tmp_path / "x.partial", {"seed": "0"})
    with pytest.raises(InputError, match="--seed 0"):
        Partial(tmp_path / "x.partial", {"seed": "1"})


@pytest.mark.torch
def test_a_cut_line_is_measured_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from calibrate.calibration import Partial

    work = Partial(tmp_path / "x.partial", {})
    work.append({"a": 1})
    with (work.directory / "forward.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"a": 2')
    again = Partial(tmp_path / "x.partial", {})
    again.append({"a": 3})
    assert again.rows() == [{"a": 1}, {"a": 3}]


@pytest.mark.torch
def test_out_of_memory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from calibrate import calibration

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(calibration, "load_pair", fails)
    assert _run(monkeypatch, "--output", str(tmp_path / "out")) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: out of memory; give a smaller --max-num-seqs")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda:99"], "--device"),
        (["--target", "no/such/directory/here", "--draft", "ngram"], "no/such/directory/here"),
        (["--prompts", "absent.jsonl"], "absent.jsonl"),
        (["--num-layers", "2"], "--dummy-weights"),
        (["--dummy-weights", "--draft", "ngram"], "--draft"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert _run(monkeypatch, *arguments, "--output", str(tmp_path / "out")) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


@pytest.mark.torch
def test_a_shape_is_measured_without_weights_and_scaled(tmp_path: Path, calibration: Path) -> None:
    pytest.importorskip("torch")
    from calibrate.calibration import calibrate
    from calibrate.tiny import MODELS
    from sim.replay.profile import Profile

    for name in ("target", "draft-s"):  # the configuration is all there is
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_bytes((MODELS / name / "config.json").read_bytes())
    config = CalibrateConfig(
        target=str(tmp_path / "target"), draft=str(tmp_path / "draft-s"), dummy_weights=True, num_layers=4,
        output=tmp_path / "out", max_num_seqs=2, max_model_len=128, budget_s=3.0,
    )  # fmt: skip
    calibrate(config, lambda line: None, lambda stage, done, total: None)
    found = Profile.load(tmp_path / "out")
    whole = Profile.load(calibration)
    # embedding + 12 equal layers + norm, from 2 and 4 layers of them: exact, for parameters are counted
    assert found.target_model.parameters == whole.target_model.parameters
    assert found.target_model.kv_bytes_per_token == whole.target_model.kv_bytes_per_token
    assert "scaled from 2 and 4 to 12 layers" in found.provenance["forward"]
    assert not (tmp_path / "out" / "acceptance.parquet").exists()


@pytest.mark.torch
def test_prompt_lookup_is_timed_and_recorded(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from calibrate.calibration import calibrate
    from sim.replay.profile import Profile

    config = CalibrateConfig(
        draft="ngram", output=tmp_path / "out", num_prompts=4, output_len=8, max_num_seqs=2, max_model_len=128,
        budget_s=2.0,
    )  # fmt: skip
    calibrate(config, lambda line: None, lambda stage, done, total: None)
    found = Profile.load(tmp_path / "out")
    assert found.draft_kind == "ngram"
    assert 0 < found.draft.seconds(1, 64, 0, 1) < found.target.seconds(1, 64, 64, 1)
