"""python -m calibrate.validate with a random pair: its files, going on, what is held out, mistakes in one line."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate import validate as command
from calibrate.validation.config import ValidateConfig
from traces.errors import InputError, run_command

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
with warnings.catch_warnings():  # the library's own deprecations at import are not ours to mend
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers")
    from calibrate.bank import Trajectory
    from calibrate.prompts import Prompt
    from calibrate.record import record
    from calibrate.validation import inputs, runs, validation, virtual

    from .random_pairs import LETTERS, Letters, llama, model_pair
    from .test_show import profile

RATE, POLICIES = "50", ("none", "fixed:k=2")


def prompts(count: int, seed: int) -> list[Prompt]:
    rng = np.random.default_rng(seed)
    texts = (rng.integers(65, 65 + LETTERS, rng.integers(3, 12)) for _ in range(count))
    return [Prompt(("a", "b")[i % 2], "".join(map(chr, ids))) for i, ids in enumerate(texts)]


def write(path: Path, found: list[Prompt]) -> Path:
    path.write_text("".join(json.dumps({"task": p.task, "prompt": p.text}) + "\n" for p in found))
    return path


@pytest.fixture(autouse=True)
def random_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(inputs, "load_pair", lambda *args, **options: model_pair(llama))
    monkeypatch.setattr(Letters, "decode", lambda self, ids, **_: "".join(chr(65 + i) for i in ids), raising=False)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 12 other prompts; costs of nobody's machine."""
    directory = tmp_path_factory.mktemp("made") / "calibration"
    profile().save(directory)
    record(model_pair(llama), prompts(12, seed=1), depth=4, output_tokens=10).save(directory)
    return directory


@pytest.fixture
def options(tmp_path: Path, calibration: Path) -> ValidateConfig:
    return ValidateConfig(
        policy=POLICIES,
        request_rate=(RATE,),
        output=tmp_path / "out",
        calibration=calibration,
        prompts=write(tmp_path / "prompts.jsonl", prompts(6, seed=2)),
        num_prompts=6,
        output_len=10,
        repeats=2,
        sim_seeds=2,
        max_num_seqs=3,
    )


def quiet(line: str) -> None:
    pass


def validated(config: ValidateConfig) -> dict[str, Any]:
    return validation.validate(config, quiet)


def test_files_and_figures(options: ValidateConfig) -> None:
    document = validated(options)
    assert document == json.loads((options.output / "validation.json").read_text())
    assert document["passed"] is False  # costs of 10 ms a pass are not this machine's
    cells = {cell["policy"]: cell for cell in document["cells"]}
    assert set(cells) == set(POLICIES)
    for cell in cells.values():
        # in virtual time the live executor decides as the replay of its texts
        assert cell["decisions"]["comparison"]["same"] == cell["decisions"]["comparison"]["steps"] > 0
        assert cell["decisions"]["same_texts"] is True
        assert len(cell["loads"]) == options.repeats
    # a fixed draft length accepts along the request's own text what it accepts live, whatever the clock
    own = {each["name"]: each for each in cells["fixed:k=2"]["figures_own_windows"]}
    assert own["spec_decode_acceptance_length"]["error_percent"] == pytest.approx(0)
    text = (options.output / "report.md").read_text()
    for title in ("Decisions in virtual time", "Acceptance length", "Single requests", "Load of the machine"):
        assert f"## {title}" in text
    page = (options.output / "report.html").read_text()
    assert page.count("<svg") == 5
    assert "<script" not in page


def test_it_goes_on_where_it_stopped(options: ValidateConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the third of four runs: two are kept, the others are run, and none twice."""
    real, started = runs.run_live, []

    def run_live(config: Any, *rest: Any) -> Any:
        started.append(config.policy)
        if len(started) == 3:
            raise KeyboardInterrupt
        return real(config, *rest)

    monkeypatch.setattr(runs, "run_live", run_live)
    with pytest.raises(KeyboardInterrupt):
        validated(options)
    validated(options)
    # repeats interleaved: each policy once before any twice
    assert started == ["none", "fixed:k=2", "none", "none", "fixed:k=2"]
    validated(replace(options, sim_seeds=3))
    assert len(started) == 5


def test_other_settings_need_another_directory(options: ValidateConfig) -> None:
    inputs.load(options, quiet)
    with pytest.raises(InputError, match="a validation with --output-len 10"):
        inputs.load(replace(options, output_len=11), quiet)
    inputs.load(replace(options, policy=("dsde",), repeats=7), quiet)  # these only add runs


def test_a_directory_of_something_else_is_left_alone(options: ValidateConfig) -> None:
    options.output.mkdir()
    (options.output / "thesis.tex").touch()
    with pytest.raises(InputError, match="exists and is no validation"):
        validated(options)


def test_the_prompts_are_split_by_task(options: ValidateConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six prompts of two tasks: of each task two for the calibration, which comes first, and one to validate."""
    seen: list[list[Prompt]] = []

    def calibrate(config: Any, *rest: Any) -> None:
        seen.append(inputs.load_prompts(config.prompts))
        profile().save(config.output)
        record(model_pair(llama), seen[0], depth=4, output_tokens=10).save(config.output)

    monkeypatch.setattr(inputs, "calibrate", calibrate)
    found = inputs.load(replace(options, calibration=None, num_prompts=3), quiet)
    held_out = inputs.load_prompts(found.prompts)
    assert sorted(prompt.task for prompt in seen[0]) == ["a", "a", "b", "b"]
    assert sorted(prompt.task for prompt in held_out) == ["a", "b"]
    assert not set(held_out) & set(seen[0])
    assert "only 2 prompts: 3 were asked for" in found.notes


def test_copied_windows_are_found(options: ValidateConfig, calibration: Path) -> None:
    """The calibration's own prompts, validated: their windows are in it."""
    same = write(options.output.parent / "same.jsonl", prompts(6, seed=1))
    found = inputs.load(replace(options, prompts=same), quiet)
    assert any(note.startswith("NOT HELD OUT") for note in found.notes)
    other = [each.on | {"draft_entropy": each.on["draft_entropy"] + 1} for each in found.trajectories]
    texts = tuple(replace(each, on=on) for each, on in zip(found.trajectories, other, strict=True))
    assert inputs.copied(texts, found.windows) == 0  # though they are accepted alike
    assert not any(note.startswith("NOT HELD OUT") for note in inputs.load(_elsewhere(options), quiet).notes)


def _elsewhere(options: ValidateConfig) -> ValidateConfig:
    return replace(options, output=options.output.parent / "other")


def test_requests_run_as_long_as_their_texts(options: ValidateConfig) -> None:
    found = inputs.load(options, quiet)
    workload = found.live_inputs(RATE).requests.workload
    assert workload.output_tokens.tolist() == [len(each.tokens) for each in found.trajectories]


def test_texts_belong_to_the_prompts_as_served(options: ValidateConfig) -> None:
    """The file's order is not that of the run: each text goes on from its own prompt."""
    found = inputs.load(options, quiet)
    served = found.live_inputs(RATE).requests.prompts
    target = found.pair.target
    for ids, own in zip(served, found.trajectories, strict=True):
        tokens = torch.tensor([[*ids, *own.tokens.tolist()]])
        best = target(input_ids=tokens).logits[0, len(ids) - 1 : -1].argmax(-1)
        assert best.tolist() == own.tokens.tolist()


def test_a_difference_is_traced_to_its_tie(options: ValidateConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text's windows turned around: its request differs first, no tie is found, others that follow stand apart."""
    found = inputs.load(options, quiet)
    first = found.trajectories[0]
    turned: Trajectory = replace(first, accept=1 - first.accept)
    decisions = virtual.decide(replace(found, trajectories=(turned, *found.trajectories[1:])), "fixed:k=2", RATE)
    assert decisions.causes[0].difference.request == 0
    assert decisions.causes[0].what == "draft"
    assert not decisions.explained
    monkeypatch.setattr(virtual, "TIE", 1e9)
    again = virtual.decide(replace(found, trajectories=(turned, *found.trajectories[1:])), "fixed:k=2", RATE)
    assert again.explained
    assert {each.what for each in again.causes[1:]} <= {"follows"}


def test_sampled_texts_have_no_windows_of_their_own(options: ValidateConfig) -> None:
    document = validated(replace(options, temperature=1.0, policy=("fixed:k=2",), repeats=1))
    (cell,) = document["cells"]
    assert cell["decisions"] is None
    assert cell["figures_own_windows"] == []
    assert cell["figures"]


def run(*args: str) -> int:
    return run_command(lambda: command.main(args))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--repeats", "0"], "--repeats 0: expected a whole number of at least 1"),
        (["--policy", "none", "none"], "--policy: expected at least one, and each once"),
        (["--temperature", "-1"], "--temperature -1: expected 0 or more"),
        (["--request-rate", "trace"], "--request-rate trace: expected requests per second, or inf"),
        (["--policy", "nothing"], "nothing"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, capsys: Any, args: list[str], said: str) -> None:
    assert run("--output", str(tmp_path / "out"), *args) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_that_cannot_run_live_is_named(options: ValidateConfig) -> None:
    with pytest.raises(InputError, match=r"live run of oracle at 50 requests/s: .*only a replay knows"):
        validated(replace(options, policy=("oracle",)))


@pytest.mark.parametrize(("passed", "flags", "status"), [(False, [], 0), (False, ["--gate"], 1), (True, ["--gate"], 0)])
def test_the_gate_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, passed: bool, flags: list[str], status: int
) -> None:
    monkeypatch.setattr(validation, "validate", lambda config, say: {"passed": passed})
    assert run("--output", str(tmp_path / "out"), *flags) == status
