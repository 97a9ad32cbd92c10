"""The windows of one text: what draft and target say along it, and after a rejection at each of its positions.

Positions of a text are those of its output tokens: row r is the window after output r, its depth d proposes output
r + 1 + d, and "position i" is where output i + 1 is decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.drafters.base import ScanningSession, Session
from calibrate.pairs import Pair
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling, compare, draw, of_token, probabilities, ratio, residual, signal_probabilities
from calibrate.writing import Text, choose
from sim.replay.windows import SIGNALS, Table

Found = tuple[torch.Tensor, dict[str, torch.Tensor], torch.Tensor]
"""Chance of acceptance, signals, and the token the draft proposes where it is rejected; each [n]."""


def along(
    target: torch.Tensor, draft: torch.Tensor, token: torch.Tensor, sampling: Sampling, luck: torch.Tensor
) -> Found:
    """Positions where the text is given: logits of both [n, V], token int64[n] the text's, luck [n] of the rejection.

    A draft token is accepted if it is the text's (greedy), or with min(1, q(y) / p(y)); a rejected one is drawn from
    the normalised (q - p)+ (arXiv 2211.17192, seen from the other side). `draft_prob` is that of the proposed token,
    in the mean over both cases; `target_prob` that of the rejected one, which lossy acceptance rules ask about.
    """
    proposes = ~draft.isneginf().all(-1)
    if sampling.greedy:
        rejected = draft.argmax(-1)
        accept = ((rejected == token) & proposes).float()
        return accept, compare(target, draft, rejected, sampling), rejected
    p, q = probabilities(target, sampling), probabilities(draft, sampling)
    accept = ratio(of_token(q, token), of_token(p, token))
    rejected = draw(residual(q, p), luck)
    signals = compare(target, draft, token, sampling)
    other = of_token(signal_probabilities(draft, sampling), rejected)
    signals["draft_prob"] = accept * signals["draft_prob"] + (1 - accept) * other
    signals["target_prob"] = of_token(signal_probabilities(target, sampling), rejected)
    return accept, signals, rejected


@dataclass(frozen=True)
class _Along:
    """One text in the caches: prompt and outputs but for the last, with what the target said.

    logits   float32[L, V] of the target at positions 0 .. L - 1
    hidden   [prompt + L, H]: the target's state before each token of the text; None if the draft needs none
    """

    text: Text
    outputs: torch.Tensor
    logits: torch.Tensor
    hidden: torch.Tensor | None


class Tables:
    """Makes the tables of texts that are in the slots of `target`.

    target    2 * batch slots; rollouts take those from `batch` on
    session   batch + 1 slots; the text takes slot 0, rollouts the others
    """

    def __init__(
        self, pair: Pair, target: ModelRunner, session: Session, sampling: Sampling, depth: int, batch: int
    ) -> None:
        self.pair = pair
        self.target = target
        self.session = session
        self.sampling = sampling
        self.depth = depth
        self.batch = batch

    def of(self, text: Text, luck: torch.Tensor) -> tuple[Table, dict[str, Table], dict[str, Table]]:
        """accept, on and off, each float32[recorded - 1, K].

        luck [recorded + K, 1 + K]: of the rejected token at each position, and of the tokens drafted after it.
        """
        read = self._read(text)
        scanned = self._scan(read) if self.pair.drafter.position_only else None
        if scanned is None:
            self.session.reset(0)
            self.session.fill(0, torch.tensor([*text.prompt, *text.outputs[:-1]]), read.hidden)
            accept, on, rejected = self._window_by_window(read, luck)
        else:
            accept, on, rejected = self._from_positions(read, scanned, luck)
        rows = text.recorded - 1
        off = {name: table[1:].copy() for name, table in on.items()}  # where nothing is ever rejected
        lost = np.flatnonzero(accept[:rows, 0] < 1)
        for first in range(0, len(lost), self.batch):
            chosen = torch.from_numpy(lost[first : first + self.batch])
            for name, table in self._after_rejection(read, chosen, rejected, luck).items():
                off[name][chosen.numpy()] = table
        return accept[:rows], {name: table[:rows] for name, table in on.items()}, off

    def _read(self, text: Text) -> _Along:
        """One pass of the target over the outputs; as many positions as windows reach."""
        outputs = torch.tensor(text.outputs)
        slot, context = torch.tensor([text.slot]), torch.tensor([len(text.prompt)])
        output = self.target.forward(outputs[None, :-1], slot, context)
        hidden = None
        if text.hidden is not None:
            states = torch.cat([text.hidden, output.hidden[0]])
            hidden = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        return _Along(text, outputs.to(output.logits.device), output.logits[0, :, : self.pair.vocab_size], hidden)

    def _scan(self, read: _Along) -> torch.Tensor:
        """The draft's logits at all positions, float32[L, V]."""
        session = cast(ScanningSession, self.session)
        session.reset(0)
        session.fill(0, torch.tensor(read.text.prompt))
        return session.scan(0, torch.tensor(read.text.outputs[:-1]))

    def _from_positions(
        self, read: _Along, draft: torch.Tensor, luck: torch.Tensor
    ) -> tuple[Table, dict[str, Table], torch.Tensor]:
        """Windows of a draft that depends on the text alone: depth d of row r is position r + d."""
        places = luck[: len(draft), 0]
        accept, signals, rejected = along(read.logits, draft, read.outputs[1:], self.sampling, places)

        def windows(values: torch.Tensor) -> Table:
            view: NDArray[np.float32] = np.lib.stride_tricks.sliding_window_view(values.cpu().numpy(), self.depth)
            return view

        return windows(accept), {name: windows(values) for name, values in signals.items()}, rejected

    def _window_by_window(self, read: _Along, luck: torch.Tensor) -> tuple[Table, dict[str, Table], torch.Tensor]:
        """Windows of any draft, each from its own start; one row more than is recorded."""
        rows = read.text.recorded
        accept = np.zeros((rows, self.depth), np.float32)
        on = {name: np.zeros_like(accept) for name in SIGNALS}
        first_rejected = []
        for first in range(0, rows, self.batch):
            row = torch.arange(first, min(first + self.batch, rows))
            logits = self._begin(read, row)
            for depth in range(self.depth):
                at = (row + depth).to(read.logits.device)
                token = read.outputs[at + 1]
                found = along(read.logits[at], logits, token, self.sampling, luck[row + depth, 0])
                accept[row.numpy(), depth] = found[0].cpu().numpy()
                for name in SIGNALS:
                    on[name][row.numpy(), depth] = found[1][name].cpu().numpy()
                if depth == 0:
                    first_rejected.append(found[2])
                if depth + 1 < self.depth:
                    logits = self.session.step(token)
        return accept, on, torch.cat(first_rejected)

    def _begin(self, read: _Along, row: torch.Tensor) -> torch.Tensor:
        """Start windows after outputs `row` in slots 1, 2, ...; the draft's logits [n, V] of their first token."""
        before = len(read.text.prompt) + row
        slots = torch.arange(1, 1 + len(row))
        self.session.fork(0, slots, before)
        hidden = None if read.hidden is None else read.hidden[before.to(read.hidden.device)][:, None]
        newest = read.outputs.cpu()[row][:, None]
        return self.session.begin(slots, newest, torch.ones_like(row), hidden)

    def _after_rejection(
        self, read: _Along, row: torch.Tensor, rejected: torch.Tensor, luck: torch.Tensor
    ) -> dict[str, Table]:
        """Signals [n, K] of what the draft goes on to propose after its first token at each row was rejected."""
        self._begin(read, row)
        tokens, logits = [rejected[row.to(rejected.device)]], []
        for depth in range(self.depth):
            logits.append(self.session.step(tokens[-1]))
            tokens.append(choose(logits[-1], self.sampling, luck[row, 1 + depth]))
        slots = torch.arange(self.batch, self.batch + len(row))
        context = len(read.text.prompt) + row + 1
        self.target.copy(read.text.slot, slots, length=int(context.max()))
        said = self.target.forward(torch.stack(tokens[:-1], 1), slots, context).logits[..., : self.pair.vocab_size]
        found = [compare(said[:, d], logits[d], tokens[d + 1], self.sampling) for d in range(self.depth)]
        return {name: torch.stack([at[name] for at in found], 1).cpu().numpy() for name in SIGNALS}
