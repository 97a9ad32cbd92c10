"""Profiles: the ones that ship, their names, directories, and the errors of both."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sim.replay import catalogue
from sim.replay.cost import ForwardCost
from sim.replay.profile import Profile
from traces.errors import InputError


def even_ms(cost: ForwardCost, num_seqs: int, query_tokens: int, context: int) -> float:
    """Milliseconds of a pass in which all sequences are alike."""
    pairs = num_seqs * (query_tokens * context + query_tokens * (query_tokens + 1) / 2)
    return 1e3 * cost.seconds(num_seqs * query_tokens, num_seqs * (context + query_tokens), pairs, num_seqs)


# Sums of the package's kernels, H100, bfloat16, 1024 cached tokens, 1, 64 and 256 sequences, without host time
H100_MS = [
    ("h100-llama-3.1-8b-tp1", "target", 1, (6.2, 10.3, 19.6)),
    ("h100-llama-3.1-8b-tp1", "target", 5, (6.6, 12.8, 38.9)),
    ("h100-llama-3.1-70b-tp8", "target", 1, (10.1, 12.3, 20.0)),
    ("h100-llama-3.1-70b-tp8", "target", 5, (10.1, 20.8, 59.2)),
    ("h100-llama-3.1-8b-tp1", "draft", 1, (1.5, 2.3, 5.0)),
]


@pytest.mark.parametrize(("name", "role", "query_tokens", "expected_ms"), H100_MS)
def test_h100_figures(name: str, role: str, query_tokens: int, expected_ms: tuple[float, ...]) -> None:
    cost = getattr(Profile.load(name), role)
    assert [even_ms(cost, b, query_tokens, 1024) for b in (1, 64, 256)] == pytest.approx(expected_ms, rel=0.06)


def test_default_profile() -> None:
    profile = Profile.load("default")
    assert profile.name == catalogue.DEFAULT == Profile.names()[0] == "h100-llama-3.1-70b-tp8"
    assert profile.target_model.huggingface_id == "meta-llama/Llama-3.1-70B-Instruct"
    assert profile.draft_model.huggingface_id == "meta-llama/Llama-3.2-1B-Instruct"
    assert profile.draft_model.tensor_parallel_size == profile.tensor_parallel_size == 8
    assert profile.host.seconds(64) == pytest.approx(0.00324)  # 1 ms + 64 * 0.035 ms
    assert "measured kernels (aiconfigurator-core" in profile.provenance["forward"]
    assert "prior" in profile.provenance["host"]


def test_kv_pool_of_the_default_profile() -> None:
    """Worked by hand from the sizes of the models.

    GPU: 81559 MiB * 0.9 - 3 GiB = 73.747e9 bytes. Weights of 70.554e9 + 1.236e9 parameters in 2 bytes over 8 GPUs:
    17.947e9. Left 55.799e9. A token: 80 layers * 8 heads * 128 * 2 * 2 bytes = 327680, and 16 * 8 * 64 * 2 * 2 = 32768,
    over 8 GPUs: 45056. 55.799e9 / (16 * 45056) = 77403 blocks.
    """
    profile = Profile.load(catalogue.DEFAULT)
    assert (profile.target_model.kv_bytes_per_token, profile.draft_model.kv_bytes_per_token) == (327680, 32768)
    assert profile.num_kv_blocks == pytest.approx(77403, abs=2)
    assert profile.kv_tokens == profile.num_kv_blocks * 16


def test_draft_on_one_gpu_takes_its_room_there() -> None:
    """The fullest GPU holds the whole draft: per token 40960 + 32768 bytes, after 17.638e9 + 2.472e9 of weights."""
    profile = Profile.load("h100-llama-3.1-70b-tp8+llama-3.2-1b-tp1")
    assert profile.draft_model.tensor_parallel_size == 1
    assert profile.num_kv_blocks == pytest.approx((73.747e9 - 20.110e9) / (16 * 73728), rel=1e-4)


@pytest.mark.parametrize(
    "spelling",
    [
        "h100-llama-3.1-70b-tp8+llama-3.2-1b",
        "H100-Llama3.1-70B-tp8-bf16",
        "h100-meta-llama/Llama-3.1-70B-Instruct-tp8+meta-llama/Llama-3.2-1B-Instruct",
    ],
)
def test_other_spellings(spelling: str) -> None:
    assert Profile.load(spelling).name == catalogue.DEFAULT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h100-llama-3.1-70b-tp9", "unknown profile .*close: h100-llama-3.1-70b-tp8"),
        ("no/such/directory", "unknown profile .*no such directory"),
        ("h100-llama-3.1-70b-tp8+qwen3-0.6b", "qwen3-0.6b cannot draft for llama-3.1-70b; known: llama-3.2-1b"),
        ("a100-llama-3.1-70b-tp8", r"no attention kernels with head size 64.*offered: a100-llama-3.1-70b-tp4\+"),
        ("a100-qwen3-8b-tp1-fp8", "no fp8 kernels"),
        ("h100-llama-3.1-70b-tp1", "134 GiB of weights do not fit GPUs with room for 69 GiB each"),
    ],
)
def test_what_is_not_there_says_why(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Profile.load(name)


def test_every_profile_on_the_list_loads_and_the_list_names_what_is_missing() -> None:
    rows = catalogue.rows()
    assert tuple(row.name for row in rows) == Profile.names()
    for row in rows:
        profile = Profile.load(row.name)
        assert profile.kv_tokens == row.kv_tokens >= 8192
        assert profile.name == row.name
        # verification of five tokens costs more than one, and a large batch more than a small one
        assert even_ms(profile.target, 64, 5, 1024) > even_ms(profile.target, 64, 1, 1024)
        assert even_ms(profile.draft, 256, 1, 1024) > even_ms(profile.draft, 1, 1, 1024) > 0
    shapes = {shape.shape: shape.reason for shape in catalogue.not_offered()}
    assert "head size 64" in shapes["a100-llama-3.1-8b-tp1/2/4/8+llama-3.2-1b"]
    assert "do not fit" in shapes["h100-llama-3.1-405b-tp1/2/4/8"]


def test_embedded_tables_are_small_and_attributed() -> None:
    files = list(Path(catalogue.__file__).parent.joinpath("profiles").glob("*.json"))
    assert sum(file.stat().st_size for file in files) < 1_000_000
    for device in catalogue.DEVICES:
        notice = json.loads(next(f for f in files if f.stem == device).read_text())["notice"]
        assert "NVIDIA" in notice
        assert "Apache" in notice
        assert "Modified" in notice


def test_fits_are_close() -> None:
    """Absolute percent of every embedded cost against the sums of kernels it was fitted to."""
    for device in catalogue.DEVICES:
        file = Path(catalogue.__file__).with_name("profiles") / f"{device}.json"
        for key, entry in json.loads(file.read_text())["costs"].items():
            found = entry["residuals"]["all"]
            assert found["median_percent"] < 4, (device, key)
            assert found["p95_percent"] < 15, (device, key)
    default = Profile.load(catalogue.DEFAULT).residuals
    assert default["target"]["all"]["p95_percent"] < 5
    assert default["draft"]["all"]["p95_percent"] < 6


def test_directory_and_back(tmp_path: Path) -> None:
    profile = Profile.load(catalogue.DEFAULT)
    profile.save(tmp_path / "pair")
    again = Profile.load(tmp_path / "pair")
    assert again == profile
    assert again.digest == profile.digest
    assert sorted(file.name for file in (tmp_path / "pair").iterdir()) == ["cost.json", "profile.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["pair"]  # nothing temporary is left


def test_saving_again_replaces_the_costs_and_keeps_other_files(tmp_path: Path) -> None:
    profile = Profile.load(catalogue.DEFAULT)
    profile.save(tmp_path)
    (tmp_path / "acceptance.parquet").write_bytes(b"recorded")
    other = dataclasses.replace(profile, target=ForwardCost.affine(0.01))
    other.save(tmp_path)
    assert Profile.load(tmp_path).target == other.target
    assert (tmp_path / "acceptance.parquet").read_bytes() == b"recorded"


def test_saving_leaves_a_strange_directory_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="is no profile; name a new directory"):
        Profile.load(catalogue.DEFAULT).save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_another_figure_is_another_digest() -> None:
    profile = Profile.load(catalogue.DEFAULT)
    assert dataclasses.replace(profile, num_kv_blocks=profile.num_kv_blocks + 1).digest != profile.digest


@pytest.mark.parametrize(
    ("file", "field", "value", "message"),
    [
        ("profile.json", "format_version", 7, "profile.json: format_version: expected 1, got 7"),
        ("profile.json", "num_kv_blocks", 0, "profile.json: num_kv_blocks: expected a number > 0, got 0"),
        ("profile.json", "block_size", "16", "profile.json: block_size: expected int, got '16'"),
        ("profile.json", "draft_kind", "oracle", "profile.json: draft_kind: expected one of autoregressive"),
        ("profile.json", "target_model", {}, "profile.json: target_model: name: expected str, got None"),
        ("profile.json", "versions", {"vllm": float("nan")}, "profile.json: cannot be read as JSON: NaN is no finite"),
        ("cost.json", "residuals", {"target": -1e400}, "cost.json: cannot be read as JSON: -Infinity is no finite"),
        ("cost.json", "draft", None, "cost.json: draft: expected dict, got None"),
        ("cost.json", "draft", {}, "cost.json: draft: linear: expected an object"),
        ("cost.json", "host", {"base_s": -1}, r"cost.json: host\.base_s: expected a finite number >= 0, got -1"),
    ],
)
def test_a_broken_directory_names_file_and_field(
    tmp_path: Path, file: str, field: str, value: Any, message: str
) -> None:
    Profile.load(catalogue.DEFAULT).save(tmp_path)
    document = json.loads((tmp_path / file).read_text())
    document[field] = value
    (tmp_path / file).write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        Profile.load(tmp_path)


def test_an_empty_directory_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no profile, profile\.json is missing"):
        Profile.load(tmp_path)


def test_not_json(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("{")
    with pytest.raises(InputError, match=r"profile\.json: cannot be read as JSON"):
        Profile.load(tmp_path)


def test_loading_a_profile_imports_no_heavy_package() -> None:
    code = (
        "import sys; from sim.replay.profile import Profile; Profile.load('default'); "
        "print([m for m in ('pandas', 'scipy', 'torch', 'aiconfigurator_core') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
