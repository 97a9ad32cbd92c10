"""Record acceptance windows of a pair: the target writes, both models read along, rejections are rolled out.

For each prompt the target writes one text. Before the first rejection a window runs along it, so that a draft whose
distribution depends on the text alone needs one teacher-forced pass for all windows; others are drafted window by
window. After a rejection a window goes on from the token that was rejected: one rollout per position, batched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from calibrate.bank import Trajectory, assemble
from calibrate.memory import NoRoomError, fitting_num_seqs, is_out_of_memory
from calibrate.pairs import Pair
from calibrate.prompts import Prompt, render
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling
from calibrate.tables import Tables
from calibrate.writing import Text, write
from sim.replay.windows import Windows
from traces.errors import InputError

DEPTH = 16
OUTPUT_TOKENS = 64
BATCH = 32


@dataclass(frozen=True)
class Settings:
    """What is recorded.

    sampling        temperature, top_p, top_k of both models
    depth           K, draft tokens of a window
    output_tokens   of each text, at most; the target's end token ends it earlier
    seed            of all draws; those of a prompt depend on it and the prompt's index alone
    batch           texts written, and rejections rolled out, at a time
    """

    sampling: Sampling = field(default_factory=Sampling)
    depth: int = DEPTH
    output_tokens: int = OUTPUT_TOKENS
    seed: int = 0
    batch: int = BATCH

    def __post_init__(self) -> None:
        for name, least in (("depth", 1), ("output_tokens", 2), ("batch", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name}: expected a whole number of at least {least}, got {getattr(self, name)}")

    @property
    def written(self) -> int:
        """Tokens that the target writes: windows at the end of the text are whole too."""
        return self.output_tokens + self.depth


class Recorder:
    """Yields the trajectories of prompts one at a time, so that the caller can keep them and go on after an interrupt.

    `say` is told what is worth knowing while it runs; what a reader of the windows must know is in `notes`.
    """

    def __init__(self, pair: Pair, settings: Settings, say: Callable[[str], None] = lambda _: None) -> None:
        self.pair = pair
        self.settings = settings
        self.say = say
        self.batch = settings.batch
        self.skipped = 0

    def trajectories(self, prompts: Sequence[Prompt], done: Collection[int] = ()) -> Iterator[Trajectory]:
        """In order of the prompts, without those whose index is in `done`.

        Prompts that leave no room for the text in the target's positions are skipped. Raises InputError if none is
        left, or if the memory does not do for one sequence.
        """
        rendered = {index: render(prompt, self.pair.tokenizer) for index, prompt in enumerate(prompts)}
        limit = self.pair.max_positions
        room = {i: ids for i, ids in rendered.items() if limit is None or len(ids) + self.settings.written <= limit}
        self.skipped = len(rendered) - len(room)
        if not room:
            raise InputError(
                f"no prompt leaves room for {self.settings.written} tokens: the target has {limit} positions"
            )
        if self.skipped:
            self.say(f"{self.skipped} prompts are too long for the target's {limit} positions and are skipped")
        todo = [index for index in room if index not in done]
        length = max(map(len, room.values())) + self.settings.written
        tables: Tables | None = None
        while todo:
            try:
                tables = tables or self._open(length)
                for trajectory in self._group(tables, {i: room[i] for i in todo[: self.batch]}, prompts):
                    yield trajectory
                    todo.remove(trajectory.index)
            except (RuntimeError, MemoryError, NoRoomError) as error:
                if not is_out_of_memory(error):
                    raise
                tables = None
                self._shrink()

    def _open(self, length: int) -> Tables:
        """Slots for the texts and as many for their rollouts; fewer where the memory says so."""
        models = [model for model in (self.pair.target, self.pair.drafter.model) if model is not None]
        # an EAGLE-style or smaller draft costs less than the target: only an upper bound is needed here
        per_token = ModelRunner(self.pair.target, max_num_seqs=1, max_model_len=1).kv_bytes_per_token * len(models)
        fitting = max(1, fitting_num_seqs(self.pair.device, per_token, length, 2 * self.batch) // 2)
        if fitting < self.batch:
            self.batch = fitting
            self.say(f"memory does for {self.batch} texts at a time")
        target = ModelRunner(self.pair.target, max_num_seqs=2 * self.batch, max_model_len=length)
        session = self.pair.drafter.session(self.batch + 1, length)
        return Tables(self.pair, target, session, self.settings.sampling, self.settings.depth, self.batch)

    def _shrink(self) -> None:
        if self.batch == 1:
            raise InputError("out of memory with one text at a time; use shorter prompts or a smaller model")
        self.batch //= 2
        if self.pair.device.type == "cuda":
            torch.cuda.empty_cache()
        self.say(f"out of memory: going on with {self.batch} texts at a time")

    def _group(self, tables: Tables, group: dict[int, list[int]], prompts: Sequence[Prompt]) -> Iterator[Trajectory]:
        draws = {index: np.random.default_rng([self.settings.seed, index]) for index in group}
        luck = np.stack([rng.random(self.settings.written) for rng in draws.values()])
        texts = write(self.pair, tables.target, list(group.values()), self.settings.sampling, luck, self.settings)
        for (index, rng), text in zip(draws.items(), texts, strict=True):
            yield self._trajectory(tables, index, prompts[index].task, text, rng)

    def _trajectory(self, tables: Tables, index: int, task: str, text: Text, rng: np.random.Generator) -> Trajectory:
        luck = rng.random((text.recorded + self.settings.depth, 1 + self.settings.depth))
        accept, on, off = tables.of(text, torch.from_numpy(luck))
        tokens = np.array(text.outputs[: text.recorded], np.int64)
        return Trajectory(index, task, tokens, accept, on, off)

    @property
    def notes(self) -> tuple[str, ...]:
        """What holds for all windows recorded."""
        sampling, depth = self.settings.sampling, self.settings.depth
        way = "greedy" if sampling.greedy else f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}"
        way += f", top_k {sampling.top_k}" if sampling.top_k and not sampling.greedy else ""
        found = [
            f"{self.pair.target_name} with draft {self.pair.draft_name}: {way}, up to {self.settings.output_tokens} "
            f"tokens a text, {depth} deep, seed {self.settings.seed}, {self.pair.device.type} "
            f"{str(self.pair.dtype).removeprefix('torch.')}",
            "the first row of a text is the window after its first output token, which comes with the prefill",
            f"windows at the end of a text reach into {depth} tokens that the target wrote after it",
            "proposals after a token that is never rejected carry the values of the next row",
        ]
        if sampling.greedy:
            found.append("entropies and divergences are of the softmax at temperature 1")
        else:
            found.append("draft_prob is the mean over acceptance and rejection of the proposed token's probability")
        if not self.pair.drafter.position_only:
            found.append("proposals after a rejection are those of the window that starts there (approximate)")
        if self.skipped:
            found.append(f"{self.skipped} prompts were too long for the target and are left out")
        return tuple(found)


def record(
    pair: Pair,
    prompts: Sequence[Prompt],
    *,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    depth: int = DEPTH,
    output_tokens: int = OUTPUT_TOKENS,
    seed: int = 0,
    batch: int = BATCH,
    progress: Callable[[int, int], None] = lambda done, total: None,
    say: Callable[[str], None] = lambda _: None,
) -> Windows:
    """All windows of a pair on the prompts. `progress(done, total)` counts prompts. Raises InputError."""
    settings = Settings(Sampling(temperature, top_p, top_k), depth, output_tokens, seed, batch)
    recorder = Recorder(pair, settings, say)
    found = []
    for trajectory in recorder.trajectories(prompts):
        found.append(trajectory)
        progress(len(found), len(prompts))
    return assemble(found, f"{pair.target_name} + {pair.draft_name}", recorder.notes)
