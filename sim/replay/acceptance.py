"""Replay of acceptance windows: which draft tokens of which request are accepted, whatever policy asks.

A request takes one recorded trajectory (of its own task where there is one) from a random offset and wraps around. The
random numbers belong to (request, position): every policy sees the same luck, so differences between two runs are
differences of policy. Before the first rejection, position t + d of the output decides depth d of the window at t.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.control.batch import DecodeBatch, Ints
from sim.control.executor import Mask
from sim.replay.windows import Table, Windows
from traces.errors import InputError
from traces.workload import Workload

_STREAM_TRAJECTORY, _STREAM_LUCK = 101, 102


def _stream(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, stream])))


class Replay:
    """Acceptance of one run. Holds one float32 of luck per output token of the workload, and a copy of the signals that
    are asked for."""

    def __init__(self, windows: Windows, workload: Workload, seed: int) -> None:
        self.windows = windows
        trajectory, offset = self._recorded(windows, workload, seed)
        self._start = windows.start[trajectory]
        self._rows = windows.rows_of[trajectory]
        self._offset = offset
        ends = np.cumsum(workload.output_tokens)
        self._luck_base = ends - workload.output_tokens
        # beyond the last token of the last request nothing is ever accepted or asked for: only padding
        luck = _stream(seed, _STREAM_LUCK).random(int(ends[-1]) + windows.depth, dtype=np.float32)
        self._luck = np.lib.stride_tricks.sliding_window_view(luck, windows.depth)
        self._single = len(windows.accept) == 1
        self._on_and_off: dict[str, Table] = {}

    @staticmethod
    def _recorded(windows: Windows, workload: Workload, seed: int) -> tuple[Ints, Ints]:
        """Trajectory and offset per request, int64[n] each."""
        rng = _stream(seed, _STREAM_TRAJECTORY)
        pick, place = rng.random(len(workload)), rng.random(len(workload))
        trajectory = np.floor(pick * len(windows.start)).astype(np.int64)
        for index, task in enumerate(workload.task):
            own = np.array([i for i, name in enumerate(windows.task) if name == task and task])
            if len(own):
                rows = workload.task_id == index
                trajectory[rows] = own[np.floor(pick[rows] * len(own)).astype(np.int64)]
        return trajectory, np.floor(place * windows.rows_of[trajectory]).astype(np.int64)

    def row(self, request: Ints, position: Ints) -> Ints:
        """Row of the window at an output position, int64[B]."""
        if self._single:
            return np.zeros(len(request), np.int64)
        return self._start[request] + (self._offset[request] + position) % self._rows[request]

    def passes(self, batch: DecodeBatch, row: Ints, place: Ints) -> NDArray[np.bool_]:
        """Whether the draft token at this place of the window (from 0) would be accepted, bool[B]."""
        at = np.arange(len(batch))
        luck = self._luck[self._luck_base[batch.request] + batch.emitted]
        return np.asarray(luck[at, place] < self.windows.accept[row, place])

    def runs(self, batch: DecodeBatch, row: Ints, depth: int) -> Ints:
        """Leading accepted tokens of a draft of `depth` tokens, int64[B]."""
        if depth == 0:
            return np.zeros(len(batch), np.int64)
        accepted = np.zeros((len(batch), depth + 1), np.bool_)  # the last column is the end of the draft
        luck = self._luck[self._luck_base[batch.request] + batch.emitted, :depth]
        np.less(luck, self.windows.accept[row, :depth], out=accepted[:, :depth])
        runs: Ints = accepted.argmin(axis=1)
        return runs

    def exact(self, batch: DecodeBatch, row: Ints, depth: int) -> Mask:
        """Which of `depth` draft tokens pass the target's own test, bool[B, depth]; `runs` is their leading run.

        Behind the first rejection the verdicts are those of the recorded text, as if it went on there: approximate,
        and asked for by lossy acceptance rules only. The signals are exact there too.
        """
        luck = self._luck[self._luck_base[batch.request] + batch.emitted, :depth]
        return np.asarray(luck < self.windows.accept[row, :depth])

    def on_and_off(self, name: str) -> Table:
        """A signal's on-trajectory rows and behind them the off-trajectory ones, put together when first asked for."""
        if name not in self._on_and_off:
            self._on_and_off[name] = np.concatenate([self.windows.on[name], self.windows.off[name]])
        return self._on_and_off[name]


class ReplaySignals:
    """Signals of the proposed positions of one step, looked up when a policy asks. See sim.control.executor.Signals."""

    def __init__(self, replay: Replay, batch: DecodeBatch, row: Ints, runs: Ints, depth: int) -> None:
        self._replay = replay
        self._batch = batch
        self._row = row
        self._runs = runs
        self._depth = depth
        self._tables: dict[str, Table] = {}
        self._places: Ints | None = None

    def _table(self, name: str) -> Table:
        """Looked up once per step: a stop rule asks after every draft token."""
        if name not in self._tables:
            self._tables[name] = self._looked_up(name)
        return self._tables[name]

    def _looked_up(self, name: str) -> Table:
        """On-trajectory values up to the first rejection, the off-trajectory ones of that rejection after it."""
        windows = self._replay.windows
        if name not in windows.on:
            raise InputError(f"acceptance {windows.name} has no signal {name}, which the policy or the rule looks at")
        if name not in windows.off:
            return windows.on[name][self._row, : self._depth]
        if self._places is None:
            self._places = self._looked_at()
        return self._replay.on_and_off(name).take(self._places)

    def _looked_at(self) -> Ints:
        """Places in `on_and_off` of what is looked at: up to the first rejection, and behind it; int64[B, depth]."""
        replay, batch, runs = self._replay, self._batch, self._runs
        rows, width = replay.windows.accept.shape
        rejected_at = replay.row(batch.request, batch.emitted + runs)
        on, off = self._row * width, (rows + rejected_at) * width - (runs + 1)
        position = np.arange(self._depth)
        return np.asarray(np.where(position > runs[:, None], off[:, None], on[:, None]) + position)

    @property
    def draft_entropy(self) -> Table:
        return self._table("draft_entropy")

    @property
    def draft_prob(self) -> Table:
        return self._table("draft_prob")

    @property
    def kld(self) -> Table:
        return self._table("kld")

    @property
    def jsd(self) -> Table:
        return self._table("jsd")

    @property
    def target_entropy(self) -> Table:
        return self._table("target_entropy")

    @property
    def target_prob(self) -> Table:
        return self._table("target_prob")
