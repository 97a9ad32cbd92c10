"""The silicon importer: passes put together from kernel tables. Needs aiconfigurator-core, except for its absence."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from calibrate import silicon
from calibrate.silicon import Grid, KernelTables, NotMeasuredError, Shape
from sim.replay import catalogue
from sim.replay.profile import Profile
from traces.parquet import read_parquet

Test = Callable[..., None]


def silicon_only(test: Test) -> Test:
    """Marks a test that needs the package, and skips it where the package is absent."""
    absent = importlib.util.find_spec("aiconfigurator_core") is None
    skipped: Test = pytest.mark.skipif(absent, reason="aiconfigurator-core is not installed")(test)
    marked: Test = pytest.mark.silicon(skipped)
    return marked


SMALL = Grid(
    num_seqs=(1, 8, 64), query_tokens=(1, 5), context_tokens=(16, 1024), chunk_seqs=(1,), chunk_tokens=(512, 4096)
)


@pytest.fixture(scope="module")
def tables() -> KernelTables:
    return KernelTables(Shape("h100", "llama-3.2-1b", "bf16", 1))


def test_without_the_package_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert silicon.main([]) == 2
    assert capsys.readouterr().err == "error: aiconfigurator-core is not installed: pip install 'draftlab[silicon]'\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "h900"], "--device: unknown 'h900'; known: h100, h200"),
        (["--target", "gpt-2"], "--target: unknown 'gpt-2'; known: llama-3.1-8b"),
        (["--tp", "3"], "--tp: unknown 3; known: 1, 2, 4, 8"),
        (["--embed", "--tp", "8"], "--embed rewrites everything that ships"),
    ],
)
@silicon_only
def test_wrong_options_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert silicon.main(arguments) == 2
    assert message in capsys.readouterr().err


@silicon_only
def test_passes_of_the_1b_draft(tables: KernelTables) -> None:
    """1.5, 2.3 and 5.0 ms for 1, 64 and 256 sequences at 1024 cached tokens."""
    times = [tables.tokens_ms(b, b) + tables.attention_ms(b, 1, 1024) for b in (1, 64, 256)]
    assert times == pytest.approx([1.5, 2.3, 5.0], rel=0.05)


@silicon_only
def test_verification_lies_between_one_token_and_independent_sequences(tables: KernelTables) -> None:
    one, shared = tables.attention_ms(64, 1, 4096), tables.attention_ms(64, 5, 4096)
    assert one < shared < tables.attention_ms(64, 5, 4096, "independent")


@silicon_only
def test_a_prompt_chunk_never_costs_less_than_reading_its_prefix(tables: KernelTables) -> None:
    for prefix in (1024, 8192, 32768):
        assert tables.attention_ms(1, 128, prefix) >= tables.decode_attention_ms(1, prefix + 128)


@silicon_only
def test_a_pass_costs_at_most_what_padding_it_would(tables: KernelTables) -> None:
    times = [tables.tokens_ms(n, 1) for n in (64, 65, 129, 257, 513, 1025, 4096)]
    assert all(a <= silicon.PADDING_MARGIN * b + 0.05 for a, b in itertools.pairwise(times))  # 0.05 ms: output layer


@silicon_only
def test_cache_beyond_the_tables_is_scaled(tables: KernelTables) -> None:
    far, half = (tables.decode_attention_ms(512, length) for length in (65536, 32768))
    assert far == pytest.approx(2 * half, rel=0.1)


@silicon_only
def test_what_the_tables_lack_is_said() -> None:
    with pytest.raises(NotMeasuredError, match="no attention kernels with head size 64"):
        KernelTables(Shape("a100", "llama-3.2-1b", "bf16", 1))
    with pytest.raises(NotMeasuredError, match="no fp8 kernels"):
        KernelTables(Shape("a100", "qwen3-8b", "fp8", 1))


@silicon_only
def test_sampling_covers_every_phase(tables: KernelTables) -> None:
    points = silicon.sample(tables, replace(SMALL, num_seqs=(1, 2, 4, 8)))
    assert set(points.phase) == {"decode", "verify", "prefill", "chunk", "mixed"}
    assert (points.new_tokens <= SMALL.max_tokens).all()
    mixed = points.phase == "mixed"
    # a mixed pass is decodes plus one chunk, never more than one attention call dearer than its chunk alone
    assert (points.num_seqs[mixed] == 9).all()


@silicon_only
def test_what_ships_is_what_the_tables_give() -> None:
    if importlib.metadata.version(silicon.PACKAGE) != Profile.load("default").versions[silicon.PACKAGE]:
        pytest.skip("the embedded tables come from another version")
    shape = Shape("h100", "llama-3.2-1b", "bf16", 8)
    _, fitted = silicon.fit_shape(shape)
    shipped = Profile.load(catalogue.DEFAULT).draft
    for batch in ((1, 1025, 1025, 1), (64, 65600, 65600, 64), (2048, 2048, 2098176, 1)):
        assert fitted.cost.seconds(*batch) == pytest.approx(shipped.seconds(*batch), rel=0.01)


@silicon_only
def test_command_writes_a_profile_with_its_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = silicon.fit_shape
    monkeypatch.setattr(silicon, "fit_shape", lambda shape, attention: real(shape, SMALL, attention))
    arguments = ["--device", "l40s", "--target", "llama-3.1-8b", "--tp", "2", "--dtype", "bf16"]
    assert silicon.main([*arguments, "--attention", "independent", "--output", str(tmp_path)]) == 0
    assert "l40s llama-3.1-8b/bf16/tp2" in capsys.readouterr().out
    profile = Profile.load(tmp_path / "l40s-llama-3.1-8b-tp2")
    assert "pessimistic" in profile.provenance["forward"]
    points = read_parquet(tmp_path / "l40s-llama-3.1-8b-tp2" / "forward.parquet")
    assert set(points["model"]) == {"target", "draft"}
    residuals = json.loads((tmp_path / "l40s-llama-3.1-8b-tp2" / "cost.json").read_text())["residuals"]
    assert residuals["target"]["all"]["points"] == (points["model"] == "target").sum()
