"""The draft loop of a step: all sequences together, each as far as it may and its policy wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.drafters.base import CHUNK, Session
from calibrate.live.rows import alike
from calibrate.live.signals import LiveSignals
from calibrate.live.texts import Texts
from calibrate.signals import Sampling
from calibrate.writing import choose
from sim.control.batch import Ints

FAR = 16
"""Tokens behind the text from which a sequence catches up in a pass of its own: others would be padded to it."""

AskStop = Callable[[int], NDArray[np.bool_]]
"""Depth -> who stops after that draft token, in the order of the rows."""


@dataclass(frozen=True)
class Draft:
    """What a round proposed, in the order of the rows.

    tokens    int64[B, D] on the device; beyond a row's own draft they mean nothing
    logits    the logits [B, V] each column was chosen from
    proposed  int64[B] tokens of each row that count
    """

    tokens: torch.Tensor
    logits: list[torch.Tensor]
    proposed: Ints


class Drafting:
    """A drafter's session over the slots of the engine.

    compact        a sequence leaves the passes after its own draft; otherwise all go through as many as the longest
    may_run_dry    whether the draft can have nothing to propose (prompt lookup)
    before         [slots, positions, H], the target's state before each token, for drafts that read it; or None
    """

    def __init__(
        self,
        session: Session,
        texts: Texts,
        sampling: Sampling,
        *,
        compact: bool,
        may_run_dry: bool,
        before: torch.Tensor | None,
        device: torch.device,
    ) -> None:
        self.session = session
        self.texts = texts
        self.sampling = sampling
        self.compact = compact
        self.may_run_dry = may_run_dry
        self.before = before
        self.device = device
        self._round: Ints = np.zeros(0, np.int64)  # rows that drafted

    def lengths(self, slots: Ints) -> Ints:
        """Tokens of the text in the draft's cache, int64[B]."""
        found: Ints = self.session.lengths.numpy()[slots]
        return found

    def prefill(self, slots: Ints, requests: Ints, counts: Ints) -> None:
        """Text after what the slots hold, counts[b] tokens of it; similar ones in one pass."""
        order, together = alike(counts)
        start = 0
        for size in together:
            rows = order[start : start + size]
            start += size
            if size == 1 or self.may_run_dry or int(counts[rows].max()) > CHUNK:
                for row in rows.tolist():
                    self._fill(int(slots[row]), int(requests[row]), int(counts[row]))
            else:
                rows = rows[np.argsort(slots[rows])]
                self._feed(slots[rows], requests[rows], counts[rows])

    def _fill(self, slot: int, request: int, count: int) -> None:
        first = int(self.session.lengths[slot])
        hidden = None if self.before is None else self.before[slot, first : first + count]
        self.session.fill(slot, torch.from_numpy(self.texts.chunk(request, first, count)), hidden)

    def _feed(self, slots: Ints, requests: Ints, counts: Ints) -> torch.Tensor:
        """The next counts[b] tokens of each text, in one pass: the logits after them."""
        done, width = self.lengths(slots), int(counts.max())
        new = torch.from_numpy(self.texts.rows(requests, done, width))
        hidden = None
        if self.before is not None:
            places = np.minimum(done[:, None] + np.arange(width), self.before.shape[1] - 1)
            hidden = self.before[torch.from_numpy(slots)[:, None], torch.from_numpy(places)]
        return self.session.begin(torch.from_numpy(slots), new, torch.from_numpy(counts), hidden)

    def round(
        self,
        slots: Ints,
        requests: Ints,
        lengths: Ints,
        signals: LiveSignals,
        luck: torch.Tensor,
        ask_stop: AskStop | None,
    ) -> Draft:
        """Draft up to lengths[b] tokens, luck [B, D] deciding the draws. No token is waited for but for a stop rule."""
        num_rows, drafting = len(slots), lengths > 0
        proposed = np.zeros_like(lengths)
        active = np.flatnonzero(drafting) if self.compact else np.arange(num_rows)
        self._round = active
        logits = self._begin(slots[active], requests[active])
        token = torch.zeros(0, dtype=torch.long)
        seen: list[torch.Tensor] = []
        tokens: list[torch.Tensor] = []
        for depth in range(1, int(lengths.max()) + 1):
            if depth > 1:
                logits = self.session.step(token)
            if self.may_run_dry:
                drafting[active] &= ~logits.isneginf().all(-1).cpu().numpy()
                if not drafting.any():
                    break
            own = luck if len(active) == num_rows else luck[torch.from_numpy(active).to(luck.device)]
            token = choose(logits, self.sampling, own[:, depth - 1])
            seen.append(self._spread(logits, active, num_rows))
            tokens.append(self._spread(token, active, num_rows))
            signals.drafted(seen[-1], tokens[-1])
            proposed[drafting] = depth
            if ask_stop is not None:
                drafting &= ~ask_stop(depth)
            drafting &= lengths > depth
            if not drafting.any():
                break
            if self.compact and not drafting[active].all():
                rows = torch.from_numpy(np.flatnonzero(drafting[active]))
                self.session.keep(rows)
                token, active = token[rows.to(token.device)], active[drafting[active]]
        return Draft(
            torch.stack(tokens, 1) if tokens else torch.zeros((num_rows, 0), dtype=torch.long, device=self.device),
            seen,
            proposed,
        )

    def commit(self, accepted: Ints) -> None:
        """How many draft tokens of each row became text."""
        self.session.commit(torch.from_numpy(accepted[self._round]))

    def _begin(self, slots: Ints, requests: Ints) -> torch.Tensor:
        """Feed the text that the draft does not know yet: a token or two, more where it sat out some steps."""
        behind = self.texts.length[requests] - self.lengths(slots)
        far = behind > FAR
        if far.any():
            self.prefill(slots[far], requests[far], behind[far] - 1)
        return self._feed(slots, requests, np.where(far, 1, behind))

    @staticmethod
    def _spread(values: torch.Tensor, active: Ints, num_rows: int) -> torch.Tensor:
        """Values of the active rows among all, 0 elsewhere."""
        if len(active) == num_rows:
            return values
        whole = values.new_zeros((num_rows, *values.shape[1:]))
        whole[torch.from_numpy(active).to(values.device)] = values
        return whole
