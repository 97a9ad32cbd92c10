"""What all runs of a validation share: the pair, the held-out requests with their own texts, and the calibration."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calibrate import machine
from calibrate.__main__ import CalibrateConfig
from calibrate.bank import Trajectory
from calibrate.calibration import calibrate
from calibrate.live.config import LiveConfig
from calibrate.live.run import LiveInputs
from calibrate.live.workload import LiveRequests, live_requests
from calibrate.pairs import TINY, Pair, load_pair
from calibrate.prompts import Prompt, load_prompts
from calibrate.record import Recorder, Settings
from calibrate.validation.config import ValidateConfig, settled
from sim.policies import default_rule
from sim.replay import windows
from sim.replay.profile import Profile
from sim.replay.windows import Table, Windows
from traces.errors import InputError
from traces.files import write_text

Say = Callable[[str], None]


@dataclass(frozen=True)
class Inputs:
    """Loaded once.

    calibration   directory of profile and windows, made of other prompts than the requests'
    trajectories  the requests' own greedy texts, in order; () when sampled
    notes         what a reader of the report must know
    """

    config: ValidateConfig
    pair: Pair
    calibration: Path
    profile: Profile
    windows: Windows
    prompts: Path
    trajectories: tuple[Trajectory, ...]
    notes: tuple[str, ...]

    def live_config(self, policy: str, rate: str) -> LiveConfig:
        """A live run that the simulator can be held against: drafts as deep as its windows, equal lengths."""
        config = self.config
        return LiveConfig(
            target=config.pair,
            draft=config.draft,
            prompts=self.prompts,
            num_prompts=self.num_prompts,
            output_len=config.output_len,
            ignore_eos=True,
            request_rate=rate,
            policy=policy,
            profile=str(self.calibration),
            skip_idle=config.skip_idle,
            temperature=config.temperature,
            max_draft_tokens=self.windows.depth,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            threads=config.threads,
            seed=config.seed,
        )

    @property
    def num_prompts(self) -> int:
        return len(self.trajectories) or self.config.num_prompts

    def live_inputs(self, rate: str) -> LiveInputs:
        """The requests at a rate; greedy ones as long as their own texts."""
        requests = live_requests(self.live_config("none", rate), self.prompts, self.pair.tokenizer)
        if self.trajectories:
            lengths = np.array([len(each.tokens) for each in self.trajectories], np.int64)
            requests = LiveRequests(replace(requests.workload, output_tokens=lengths), requests.prompts)
        return LiveInputs(self.pair, requests, self.profile)


def load(config: ValidateConfig, say: Say) -> Inputs:
    """Split the prompts, calibrate if need be, record the requests' own texts. Raises InputError."""
    for policy in config.policy:
        default_rule(policy)  # refuses one that does not exist before anything is measured
    _check_settings(config)
    machine.pin_threads(config.threads)
    calibration, held_out = _held_out(config, say)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries
        pair = load_pair(config.pair, config.draft, device=config.device, dtype=config.dtype, progress=say)
    profile, bank = Profile.load(str(calibration)), windows.load(calibration)
    notes = [f"costs and windows: {'made here of the other half of the prompts' if _own(config) else calibration}"]
    texts: tuple[Trajectory, ...] = ()
    if config.temperature:
        chosen = held_out[: config.num_prompts]
        notes.append(f"sampled: every request has {config.output_len} tokens, end tokens are ignored")
    else:
        chosen, texts = _own_texts(config, pair, held_out, bank.depth, say)
        notes.append("greedy: every request is as long as its own text, up to its end token")
        if copies := copied(texts, bank):
            notes.append(f"NOT HELD OUT: the windows of {copies} requests are in the calibration too")
    if len(chosen) < config.num_prompts:
        notes.append(f"only {len(chosen)} prompts: {config.num_prompts} were asked for")
    path = config.output / "prompts.jsonl"
    _write(path, chosen)
    # files are read one prompt of each task in turn, in an order of the seed: texts go with the prompts as read
    read = load_prompts(path, seed=config.seed)
    ordered = tuple(replace(texts[chosen.index(prompt)], index=i) for i, prompt in enumerate(read)) if texts else ()
    return Inputs(config, pair, calibration, profile, bank, path, ordered, tuple(notes))


def _check_settings(config: ValidateConfig) -> None:
    path = config.output / "settings.json"
    wanted = settled(config)
    if path.is_file():
        found = json.loads(path.read_text("utf-8"))
        for name in wanted:
            if found.get(name) != wanted[name]:
                raise InputError(
                    f"{config.output}: a validation with --{name.replace('_', '-')} {found.get(name)}; give the same "
                    "options to go on, or another --output"
                )
        return
    if config.output.exists() and (not config.output.is_dir() or any(config.output.iterdir())):
        raise InputError(f"--output {config.output}: exists and is no validation; name a new directory")
    config.output.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(wanted, indent=1) + "\n")


def _own(config: ValidateConfig) -> bool:
    return config.calibration is None


def _held_out(config: ValidateConfig, say: Say) -> tuple[Path, list[Prompt]]:
    """The calibration and the prompts to validate with: all that are given, or one half, of every task."""
    source = TINY if config.prompts is None and config.pair == TINY else config.prompts
    found = list(dict.fromkeys(load_prompts(source, seed=config.seed)))
    if config.calibration is not None:
        return config.calibration, found
    halves: tuple[list[Prompt], list[Prompt]] = ([], [])
    seen: dict[str, int] = {}
    for prompt in found:
        seen[prompt.task] = seen.get(prompt.task, 0) + 1
        halves[seen[prompt.task] % 2].append(prompt)
    held_out, others = halves
    if len(held_out) < 2 or len(others) < 2:
        raise InputError("--prompts: expected at least two prompts for the calibration and two to validate with")
    directory = config.output / "calibration"
    if not (directory / "acceptance.parquet").is_file():
        path = config.output / "calibration-prompts.jsonl"
        _write(path, others)
        calibrate(_calibrate_config(config, path, directory), say, lambda stage, done, total: None)
    return directory, held_out


def _calibrate_config(config: ValidateConfig, prompts: Path, output: Path) -> CalibrateConfig:
    return CalibrateConfig(
        target=config.pair,
        draft=config.draft,
        output=output,
        device=config.device,
        dtype=config.dtype,
        threads=config.threads,
        prompts=prompts,
        num_prompts=config.calibration_prompts,
        output_len=config.output_len,
        temperature=config.temperature,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        budget_s=config.budget_s,
        seed=config.seed,
    )


def _own_texts(
    config: ValidateConfig, pair: Pair, prompts: list[Prompt], depth: int, say: Say
) -> tuple[list[Prompt], tuple[Trajectory, ...]]:
    """The first prompts whose texts have two tokens or more, and these; kept in OUTPUT/texts."""
    directory = config.output / "texts"
    directory.mkdir(exist_ok=True)
    done = {each.index: each for each in map(Trajectory.load, sorted(directory.glob("[0-9]*.npz")))}
    recorder = Recorder(pair, Settings(depth=depth, output_tokens=config.output_len, seed=config.seed), say)
    start = 0
    while sum(len(each.accept) > 0 for each in done.values()) < config.num_prompts and start < len(prompts):
        stop = start + config.num_prompts
        if missing := [index for index in range(start, min(stop, len(prompts))) if index not in done]:
            say(f"recording the texts of {len(missing)} requests")
            for each in recorder.trajectories(prompts[:stop], {i for i in range(stop) if i not in missing}):
                each.save(directory / f"{each.index:06d}.npz")
                done[each.index] = each
        start = stop
    kept = [done[i] for i in sorted(done) if len(done[i].accept)][: config.num_prompts]
    if not kept:
        raise InputError("no prompt is followed by a text of two tokens or more")
    return [prompts[each.index] for each in kept], tuple(kept)


def copied(texts: tuple[Trajectory, ...], bank: Windows) -> int:
    """Texts that the bank holds too, window by window: they were not held out.

    Acceptance alone is 0 and 1 and may be equal by chance; entropies of the draft are not.
    """
    signal = "draft_entropy"
    if signal not in bank.on:
        return 0
    ends = bank.start + bank.rows_of
    known = [bank.on[signal][a:b] for a, b in zip(bank.start, ends, strict=True)]
    return sum(any(_alike(each.on[signal], other) for other in known) for each in texts if signal in each.on)


def _alike(a: Table, b: Table) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, atol=1e-3))


def _write(path: Path, prompts: list[Prompt]) -> None:
    lines = (json.dumps({"task": each.task, "prompt": each.text}, ensure_ascii=False) for each in prompts)
    write_text(path, "\n".join(lines) + "\n")
