"""One calibration from pair to profile: forward costs, host time, acceptance windows, reconciliation.

Until it is whole everything lies in `OUTPUT.partial`, one file for each thing measured, so that an interrupted run goes
on where it stopped. The profile then appears in OUTPUT whole.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrate import costs, forward, machine, memory
from calibrate.bank import Trajectory, assemble
from calibrate.grid import Extent
from calibrate.host import host_cost
from calibrate.lookup import lookup_cost, no_model
from calibrate.pairs import TINY, Pair, load_pair
from calibrate.prompts import Prompt, load_prompts
from calibrate.reconcile import Reconciliation, reconcile
from calibrate.record import Recorder, Settings
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling
from sim.replay.profile import Profile
from sim.replay.windows import Windows
from traces.errors import InputError

if TYPE_CHECKING:
    from calibrate.__main__ import CalibrateConfig

Say = Callable[[str], None]
Progress = Callable[[str, float, float], None]
TINY_BUDGET_S, BUDGET_S = 110.0, 600.0
RECONCILIATION = "reconciliation.json"


def calibrate(config: CalibrateConfig, say: Say, progress: Progress) -> None:
    """Measure and write `config.output`. Raises InputError in one line; what was measured until then is kept."""
    _check_output(config.output)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries; ours are said
            _calibrate(config, say, progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise InputError(f"{config.output}: cannot be written: {error.strerror}") from None
        raise
    except (RuntimeError, MemoryError) as error:
        if memory.is_out_of_memory(error):
            raise InputError(
                "out of memory; give a smaller --max-num-seqs or --max-model-len, or free some and go on with the same "
                "command: what was measured is kept"
            ) from None
        raise


def _check_output(output: Path) -> None:
    """Before hours of measuring: what could not be written at the end."""
    if output.is_file() or (output.is_dir() and any(output.iterdir()) and not (output / "profile.json").is_file()):
        raise InputError(f"--output {output}: exists and is no calibration; name a new directory")


def _calibrate(config: CalibrateConfig, say: Say, progress: Progress) -> None:
    if config.dummy_weights:
        from calibrate.shapes import calibrate_shapes

        calibrate_shapes(config, say, progress)
        return
    machine.pin_threads(config.threads)
    pair = load_pair(config.target, config.draft, device=config.device, dtype=config.dtype, progress=say)
    prompts = load_prompts(_prompt_source(config), limit=config.num_prompts, seed=config.seed)
    work = Partial(config.output.with_name(config.output.name + ".partial"), fingerprint(config))
    if work.resumed:
        say(f"going on with what {work.directory} holds")
    before = machine.load(pair.device)
    profile, points = _costs(config, pair, work, say, progress)
    windows, checked = _acceptance(config, pair, prompts, work, say, progress)
    profile.save(config.output, points)
    windows.save(config.output)
    document = checked.to_dict() | {"temperature": config.temperature, "top_p": config.top_p}
    (config.output / RECONCILIATION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    machine.save(config.output, pair.device, before)
    work.remove()


def _prompt_source(config: CalibrateConfig) -> str | Path | None:
    return TINY if config.prompts is None and config.target == TINY else config.prompts


def fingerprint(config: CalibrateConfig) -> dict[str, Any]:
    """What must be equal for a run to go on with another's measurements."""
    return {name: str(value) for name, value in dataclasses.asdict(config).items() if name != "output"}


class Partial:
    """What an unfinished calibration has measured. Raises InputError if it was started with other options."""

    def __init__(self, directory: Path, fingerprint: dict[str, Any]) -> None:
        self.directory = directory
        self._rows = directory / "forward.jsonl"
        settings = directory / "settings.json"
        self.resumed = settings.is_file()
        if self.resumed:
            found = json.loads(settings.read_text(encoding="utf-8"))
            other = [name for name in fingerprint if found.get(name) != fingerprint[name]]
            if other:
                flag = other[0].replace("_", "-")
                raise InputError(
                    f"{directory}: an unfinished calibration with --{flag} {found.get(other[0])}; "
                    "give the same options to go on, or delete it"
                )
            if self._rows.is_file() and not self._rows.read_bytes().endswith(b"\n"):
                with self._rows.open("a", encoding="utf-8") as file:
                    file.write("\n")  # an interrupt cut the last line: the next is not to grow onto it
            return
        directory.mkdir(parents=True, exist_ok=True)
        self.put("settings.json", fingerprint)

    def put(self, name: str, document: Any) -> None:
        """Write a JSON file, whole or not at all."""
        scratch = self.directory / f".{name}.tmp"
        scratch.write_text(json.dumps(document), encoding="utf-8")
        scratch.replace(self.directory / name)

    def get(self, name: str) -> Any:
        """What `put` wrote, None if it did not."""
        path = self.directory / name
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def rows(self) -> list[dict[str, Any]]:
        """Measured passes; a line that an interrupt cut is measured again."""
        found = []
        for line in self._rows.read_text(encoding="utf-8").splitlines() if self._rows.is_file() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def append(self, row: dict[str, Any]) -> None:
        """Keep one measured pass."""
        with self._rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def trajectories(self) -> Iterator[Trajectory]:
        """Recorded texts, in order of the prompts."""
        for path in sorted(self.directory.glob("[0-9]*.npz")):
            yield Trajectory.load(path)

    def keep(self, trajectory: Trajectory) -> None:
        """Keep one recorded text."""
        trajectory.save(self.directory / f"{trajectory.index:06d}.npz")

    def remove(self) -> None:
        shutil.rmtree(self.directory)


def _costs(config: CalibrateConfig, pair: Pair, work: Partial, say: Say, progress: Progress) -> tuple[Profile, Any]:
    """The profile without what depends on text, and the measured points as a frame."""
    free = memory.free_bytes(pair.device)
    models = {"target": pair.target}
    if pair.drafter.model is not None:
        models["draft"] = pair.drafter.model
    length = min(config.max_model_len, pair.max_positions or config.max_model_len)
    probes = {name: ModelRunner(model, max_num_seqs=1, max_model_len=1) for name, model in models.items()}
    kv_bytes = sum(probe.kv_bytes_per_token for probe in probes.values())
    capacity = memory.kv_capacity(pair.device, kv_bytes, free=free, num_gpu_blocks=config.num_gpu_blocks)
    seqs = memory.fitting_num_seqs(pair.device, kv_bytes, length, config.max_num_seqs)
    if seqs < config.max_num_seqs:
        say(f"memory does for batches of {seqs} sequences of {length} tokens")
    runners, seqs = runners_that_fit(models, seqs, length, say)
    rows = forward_rows(
        config, runners, Extent(seqs, length, min(config.max_num_batched_tokens, length)), work, say, progress
    )
    for remark in costs.remarks(rows):
        say(f"note: {remark}")
    fitted = costs.fit_costs(rows)
    draft_model, draft_cost = no_model(pair.draft_name), fitted.draft
    if draft_cost is not None:
        draft_model = runners["draft"].describe(short(pair.draft_name), pair.draft_name)
    else:
        draft_cost, error = lookup_cost(
            pair.drafter, pair.vocab_size, pair.device, max_num_seqs=seqs, max_model_len=length
        )
        longest_ms = 1e3 * draft_cost.seconds(1, length, 0, 1)
        say(f"look-up: {longest_ms:.3g} ms in {length} tokens, median error {error:.1f} %")
    host = host_cost(pair.vocab_size, pair.device, max_num_seqs=seqs, temperature=config.temperature)
    how = "measured: eager, median of repeats"
    if pair.device.type == "cpu":
        how += f"; CPU threads: {config.threads}"
    profile = Profile(
        name=f"{short(pair.target_name)}+{short(pair.draft_name)}",
        device=machine.device_name(pair.device),
        device_memory_bytes=memory.total_bytes(pair.device),
        engine=f"draftlab on transformers {machine.versions().get('transformers', '')}".strip(),
        target_model=runners["target"].describe(short(pair.target_name), pair.target_name),
        draft_model=draft_model,
        draft_kind=pair.drafter.kind,
        num_kv_blocks=capacity.num_kv_blocks,
        block_size=capacity.block_size,
        target=fitted.target,
        draft=draft_cost,
        host=host,
        versions=machine.versions(),
        git_revision=machine.git_revision(),
        date=date.today().isoformat(),
        provenance={"forward": how, "host": host.provenance, "kv pool": capacity.provenance},
        residuals=fitted.residuals,
    )
    return profile, costs.combine(rows)


def runners_that_fit(
    models: Mapping[str, Any], num_seqs: int, max_model_len: int, say: Say
) -> tuple[dict[str, ModelRunner], int]:
    """A runner for each model and the sequences each holds: `num_seqs`, or fewer where the memory says so."""

    def make(count: int) -> dict[str, ModelRunner]:
        return {n: ModelRunner(model, max_num_seqs=count, max_model_len=max_model_len) for n, model in models.items()}

    return memory.shrinking(make, num_seqs, say)


def short(name: str) -> str:
    """The last part of a path or id."""
    return name.rstrip("/").rsplit("/", 1)[-1]


def budget_of(config: CalibrateConfig) -> float:
    """Seconds for forward costs."""
    return config.budget_s or (TINY_BUDGET_S if config.target == TINY else BUDGET_S)


def forward_rows(
    config: CalibrateConfig,
    runners: dict[str, ModelRunner],
    extent: Extent,
    work: Partial,
    say: Say,
    progress: Progress,
    *,
    budget_s: float | None = None,
    plan: forward.Plan | None = None,
) -> list[dict[str, Any]]:
    """Measured passes, those of an interrupted run first. plan: what to measure; None: what the budget allows."""
    if work.get("forward-done.json"):
        return work.rows()
    document = work.get("plan.json")
    if document is None:
        if plan is None:
            budget_s = budget_of(config) if budget_s is None else budget_s
            plan = forward.points_to_measure(runners, extent, budget_s=budget_s, seed=config.seed)
        work.put("plan.json", plan.to_dict())
    else:
        plan = forward.Plan.from_dict(document)
    for note in plan.notes:
        say(f"note: {note}")
    done = {forward.key_of(row) for row in work.rows()}
    expected_s = min(plan.budget_s, 3 * sum(plan.estimated_s))  # each point is visited three times
    say(f"measuring forward passes for up to {expected_s:.0f} s")
    started = time.perf_counter()
    for row in forward.measure(plan, runners, done=done, say=say):
        work.append(dict(row))
        progress("forward passes", time.perf_counter() - started, expected_s)
    work.put("forward-done.json", True)
    return work.rows()


def _acceptance(
    config: CalibrateConfig, pair: Pair, prompts: list[Prompt], work: Partial, say: Say, progress: Progress
) -> tuple[Windows, Reconciliation]:
    """Windows of all prompts, held against a live run."""
    settings = Settings(
        Sampling(config.temperature, config.top_p),
        depth=config.depth,
        output_tokens=config.output_len,
        seed=config.seed,
    )
    recorder = Recorder(pair, settings, say)
    done = {trajectory.index for trajectory in work.trajectories()}
    say(f"recording acceptance windows of {len(prompts)} prompts")
    for count, trajectory in enumerate(recorder.trajectories(prompts, done), start=len(done) + 1):
        work.keep(trajectory)
        progress("acceptance windows", count, len(prompts))
    trajectories = list(work.trajectories())
    windows = assemble(trajectories, f"{pair.target_name} + {pair.draft_name}", recorder.notes)
    say(f"decoding live with k = {config.reconcile_k}")
    checked = reconcile(
        pair,
        prompts,
        trajectories,
        settings,
        k=config.reconcile_k,
        progress=lambda count, total: progress("live runs", count, total),
    )
    checked.check()
    say(
        f"acceptance length at k = {checked.k}: {checked.live_length:.3f} live, {checked.window_length:.3f} from the "
        f"windows; speed-up at B = 1: {checked.speedup:.2f}"
    )
    return windows, checked
