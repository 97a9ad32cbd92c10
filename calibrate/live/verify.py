"""What the target makes of the drafts of a step: how many tokens hold, and which token follows.

Greedy: a token holds if it is the target's likeliest. Sampled (arXiv 2211.17192): with probability min(1, p / q); after
a rejection the token comes from the normalised (p - q)+, after full acceptance from p. A lossy rule may let tokens
stand that fail this test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from calibrate.live.drafting import Draft
from calibrate.signals import Sampling, draw, of_token, probabilities, ratio, residual
from sim.control.batch import Ints
from traces.errors import InputError

Stands = Callable[[NDArray[np.bool_]], Ints]
"""exact bool[B, D], who passes the target's own test -> accepted int64[B], under a lossy rule."""


@dataclass(frozen=True)
class Verdict:
    """Per row, in order: accepted int64[B], and the tokens that follow, int64[B, D + 1]: drafts, then at place
    `accepted` the correction or bonus; what stands behind it is no text."""

    accepted: Ints
    tokens: NDArray[np.int64]


def verify(
    target: torch.Tensor,
    draft: Draft | None,
    verified: Ints,
    sampling: Sampling,
    luck: torch.Tensor,
    stands: Stands | None = None,
) -> Verdict:
    """Judge verified[b] draft tokens of each row.

    target  logits [sum(verified + 1), V], row after row
    luck    [B, 1 + D] in [0, 1): for the last token, then for the test of each draft token

    One transfer to the host, one more with a lossy rule. Raises InputError if the target says nothing (NaN).
    """
    depth = int(verified.max()) if draft is not None else 0
    if draft is None or not depth:
        return _plain(target, sampling, luck)
    lines = _Lines(verified, depth, target.device)
    judge: _Judge = (_Greedy if sampling.greedy else _Sampled)(target, draft, lines, sampling, luck)
    exact = judge.exact() & lines.judged
    if stands is None:
        accepted = exact.long().cumprod(1).sum(1)
    else:
        accepted = torch.from_numpy(stands(exact.cpu().numpy())).to(exact.device)
    last = judge.follow(accepted)
    columns = [accepted[:, None], last[:, None], judge.unsound.expand(len(last), 1), draft.tokens[:, :depth]]
    host = torch.cat(columns, 1).cpu().numpy()
    _check(host[:, 2])
    tokens = np.concatenate([host[:, 3:], host[:, 1:2]], 1)
    tokens[np.arange(len(host)), host[:, 0]] = host[:, 1]
    return Verdict(host[:, 0], tokens)


def _plain(target: torch.Tensor, sampling: Sampling, luck: torch.Tensor) -> Verdict:
    """Nobody drafted: one token a row."""
    best, last = target.max(-1)
    if not sampling.greedy:
        last = draw(probabilities(target, sampling), luck[:, 0])
    host = torch.stack([last, best.isnan()], 1).cpu().numpy()
    _check(host[:, 1])
    return Verdict(np.zeros(len(host), np.int64), host[:, :1])


def _check(unsound: NDArray[np.int64]) -> None:
    if unsound.any():
        raise InputError("the target's logits are not numbers (NaN): its weights are damaged or overflow in this dtype")


class _Lines:
    """Which line of the target's logits judges which draft token.

    first   int64[B], the line of the newest token of each row, which judges its first draft token
    judged  bool[B, D], whether there is such a draft token
    of      int64[B, D], its line
    """

    def __init__(self, verified: Ints, depth: int, device: torch.device) -> None:
        self.first = torch.from_numpy(np.cumsum(verified + 1) - verified - 1).to(device)
        self.verified = torch.from_numpy(verified).to(device)
        self.depth = depth
        columns = torch.arange(depth, device=device)
        own = self.verified[:, None]
        self.judged = columns < own
        self.of = self.first[:, None] + torch.minimum(columns, own)


class _Judge(Protocol):
    unsound: torch.Tensor
    """bool[1, 1], whether some of the target's logits are no numbers."""

    def exact(self) -> torch.Tensor:
        """Which draft tokens pass the target's test given those before them, bool[B, D]."""

    def follow(self, accepted: torch.Tensor) -> torch.Tensor:
        """The token after the accepted ones, int64[B]."""


class _Greedy:
    def __init__(
        self, target: torch.Tensor, draft: Draft, lines: _Lines, sampling: Sampling, luck: torch.Tensor
    ) -> None:
        best, self._wanted = target.max(-1)
        self.unsound = best.isnan().any().view(1, 1)
        self._draft = draft
        self._lines = lines

    def exact(self) -> torch.Tensor:
        return self._draft.tokens[:, : self._lines.depth] == self._wanted[self._lines.of]

    def follow(self, accepted: torch.Tensor) -> torch.Tensor:
        return self._wanted[self._lines.first + accepted]


class _Sampled:
    def __init__(
        self, target: torch.Tensor, draft: Draft, lines: _Lines, sampling: Sampling, luck: torch.Tensor
    ) -> None:
        self.unsound = target.amax(-1).isnan().any().view(1, 1)
        self._p = probabilities(target, sampling)
        self._draft = draft
        self._lines = lines
        self._luck = luck
        self._q = probabilities(torch.stack(draft.logits[: lines.depth], 1), sampling)

    def exact(self) -> torch.Tensor:
        tokens = self._draft.tokens[:, : self._lines.depth]
        chance = ratio(of_token(self._p[self._lines.of], tokens), of_token(self._q, tokens))
        return self._luck[:, 1 : 1 + self._lines.depth].to(chance) < chance

    def follow(self, accepted: torch.Tensor) -> torch.Tensor:
        law, depth = self._p[self._lines.first + accepted], self._lines.depth
        rejected = self._q[torch.arange(len(accepted), device=law.device), accepted.clamp(max=depth - 1)]
        full = (accepted == self._lines.verified)[:, None]
        return draw(torch.where(full, law, residual(law, rejected)), self._luck[:, 0])
