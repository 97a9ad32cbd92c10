"""Files of a run: complete or absent, the same bytes for the same run, readable by others (F1, F65, F67)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import results as module
from sim.control.log import STEP_COLUMNS
from sim.results import plain, read_results
from tests.sim.runs import busy, empty, small
from traces.errors import InputError

ALL = ["requests.parquet", "results.json", "steps.parquet", "timeline.json"]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def strict_json(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


def test_saves_what_was_asked_for(tmp_path):
    small().save(tmp_path / "a" / "b")
    assert sorted(os.listdir(tmp_path / "a" / "b")) == ["requests.parquet", "results.json"]
    small().save(tmp_path, detailed=True, timeline=True)
    assert sorted(name for name in os.listdir(tmp_path) if name != "a") == ALL


def test_an_earlier_run_leaves_nothing_behind(tmp_path):
    small().save(tmp_path, detailed=True, timeline=True)
    small().save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["requests.parquet", "results.json"]


def test_results_json_has_vllms_keys_at_top_level(tmp_path):
    small().save(tmp_path, detailed=True)
    content = strict_json(tmp_path / "results.json")
    assert content["backend"] == "draftlab-sim"
    assert content["request_rate"] == "inf"  # as vLLM writes it
    assert content["num_prompts"] == 5
    assert content["completed"] == 2
    assert content["input_lens"] == [8, 16, 999, 8, 8]
    assert content["output_lens"] == [4, 1, 0, 4, 0]
    assert content["ttfts"] == pytest.approx([0.1, 0.1, None, 0.3, None])
    assert content["itls"][0] == pytest.approx([0.2, 0.1])
    assert content["start_times"] == [0.0, 0.0, 0.05, 0.1, None]
    assert content["errors"] == ["", "", "prompt longer than the KV pool", "", ""]
    assert "date" not in content
    assert content["provenance"]["profile_digest"] == "0123abcd"


@pytest.mark.shared_data
def test_keys_cover_those_of_a_real_vllm_file(shared_data):
    real = shared_data / "vllm" / "draft4-k3-inf-c8-a.json"
    # not ours to know: the clock and tokenizer of the client, an extra of its user, audio, and vLLM's own queue times
    others = {"date", "endpoint_type", "label", "tokenizer_id", "load0", "rtfx", "queue_times"}
    assert set(json.loads(real.read_text("utf-8"))) - others <= set(small().to_dict(detailed=True))


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
def test_requests_load_with_pandas(tmp_path):
    import pandas

    small().save(tmp_path, detailed=True)
    table = pandas.read_parquet(tmp_path / "requests.parquet", engine="fastparquet")
    assert table["request_id"].tolist() == [0, 1, 2, 3, 4]
    assert table["status"].tolist() == ["completed", "completed", "rejected", "running", "not_arrived"]
    assert table["acceptance_histogram"][0] == [0, 1, 0, 0]
    assert table["acceptance_histogram_by_draft_length"].tolist() == [
        {"3": [0, 1, 0, 0]},
        {},
        {},
        {"3": [0, 0, 1, 0]},
        {},
    ]
    assert np.isnan(table["tpot_s"][1])
    steps = pandas.read_parquet(tmp_path / "steps.parquet", engine="fastparquet")
    assert tuple(steps) == STEP_COLUMNS
    assert steps["drafted"].tolist() == [0, 3, 0, 3]


@pytest.mark.parametrize("run", [small, empty])
def test_read_back(tmp_path, run):
    run().save(tmp_path, detailed=True, timeline=True)
    saved = read_results(tmp_path)
    assert {key: saved.metrics[key] for key in run().metrics} == plain(run().metrics)
    assert saved.config["policy"] == "dsde"
    assert saved.requests.equals(run().to_frame().astype(saved.requests.dtypes))
    assert saved.steps is not None
    assert len(saved.steps) == len(run().log.steps)


def test_every_parquet_file_says_where_it_comes_from(tmp_path):
    import fastparquet

    small().save(tmp_path, detailed=True)
    for name in ("requests.parquet", "steps.parquet"):
        with (tmp_path / name).open("rb") as file:
            described = json.loads(fastparquet.ParquetFile(file).key_value_metadata["draftlab"])
        assert described["provenance"]["seed"] == 7
        assert described["config"]["policy"] == "dsde"


def test_same_run_same_bytes(tmp_path):
    # F65: twice in this process, and in two more with other hash seeds
    code = "import sys; from tests.sim.runs import busy; busy(30).save(sys.argv[1], detailed=True, timeline=True)"
    directories = [tmp_path / name for name in "abcd"]
    for directory in directories[:2]:
        busy(30).save(directory, detailed=True, timeline=True)
    for directory, seed in zip(directories[2:], ("0", "1"), strict=True):
        environment = os.environ | {"PYTHONHASHSEED": seed, "LC_ALL": "C", "PYTHONUTF8": "0"}
        root = Path(__file__).parents[2]
        subprocess.run([sys.executable, "-c", code, str(directory)], cwd=root, env=environment, check=True)
    for name in ALL:
        assert len({(directory / name).read_bytes() for directory in directories}) == 1, name


@pytest.mark.parametrize("writer", ["_write_text", "_write_parquet", "write_timeline"])
def test_full_disk_leaves_nothing(tmp_path, monkeypatch, writer):
    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, writer, full)
    with pytest.raises(InputError, match=r"cannot write the results to .*: No space left"):
        small().save(tmp_path, detailed=True, timeline=True)
    assert os.listdir(tmp_path) == []


def test_failed_run_keeps_the_earlier_one(tmp_path, monkeypatch):
    small().save(tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    monkeypatch.setattr(module, "_write_text", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        busy(5).save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["requests.parquet", "results.json"]
    assert (tmp_path / "results.json").read_bytes() == before


def test_directory_that_is_a_file(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(InputError, match="taken"):
        small().save(tmp_path / "taken")


@pytest.mark.parametrize("content", [None, "[]", "{", '{"completed": 1}'])
def test_reading_what_is_no_run(tmp_path, content):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    with pytest.raises(InputError, match="draftlab"):
        read_results(tmp_path)


def test_undefined_is_null_everywhere():
    run = replace(empty(), metrics=empty().metrics | {"odd": float("nan"), "array": np.array([1.0, np.nan])})
    content = json.loads(run.to_json(detailed=True), parse_constant=refuse)
    assert (content["odd"], content["array"], content["mean_ttft_ms"]) == (None, [1.0, None], None)
