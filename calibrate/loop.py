"""Live speculative decoding of one sequence with real caches: draft k, verify in one pass, go on from what holds.

Lossless speculative sampling (arXiv 2211.17192); with k = 0 it is plain decoding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from calibrate.pairs import Pair
from calibrate.runner import ModelRunner
from calibrate.signals import Sampling, draw, of_token, probabilities, ratio, residual
from calibrate.writing import choose, prefill


@dataclass(frozen=True)
class Step:
    """One step of the loop, in tokens.

    proposed   drafted; fewer than k where the draft had nothing to propose
    accepted   leading drafts that became text
    emitted    text of this step: accepted + 1, or fewer where the text ended inside; then without a bonus token
    gap        smallest distance of the two highest logits of either model that decided; inf if not asked for
    """

    proposed: int
    accepted: int
    emitted: int
    gap: float = math.inf


@dataclass(frozen=True)
class LiveText:
    """What a run wrote: output tokens, steps after the first token, seconds of these steps."""

    tokens: list[int]
    steps: list[Step]
    decode_s: float

    @property
    def decoded(self) -> int:
        """Tokens that the steps emitted: all but the first, which comes with the prefill."""
        return len(self.tokens) - 1


class SpeculativeLoop:
    """One slot of both models. Raises InputError if it does not fit the memory."""

    def __init__(self, pair: Pair, sampling: Sampling, *, max_model_len: int) -> None:
        self.pair = pair
        self.sampling = sampling
        self.target = ModelRunner(pair.target, max_num_seqs=1, max_model_len=max_model_len)
        self.session = pair.drafter.session(1, max_model_len)
        self._slot = torch.zeros(1, dtype=torch.long)
        self._synchronise = torch.cuda.synchronize if pair.device.type == "cuda" else lambda: None

    def run(
        self,
        prompt: Sequence[int],
        *,
        k: int,
        output_tokens: int,
        rng: np.random.Generator | None = None,
        gaps: bool = False,
    ) -> LiveText:
        """Write up to `output_tokens` tokens after a prompt with k drafts a step; `rng` draws above temperature 0."""
        rng = rng or np.random.default_rng(0)
        logits, hidden = prefill(self.target, 0, prompt, self.pair.drafter.needs_hidden)
        first = choose(logits[None, : self.pair.vocab_size], self.sampling, self._luck(rng, 1))
        text = [*prompt, int(first)]
        # the target's state before each token of the text
        before = None if hidden is None else torch.cat([torch.zeros_like(hidden[:1]), hidden])
        if k:
            self.session.reset(0)
            self.session.fill(0, torch.tensor(text[:-1]), None if before is None else before[:-1])
        steps: list[Step] = []
        self._synchronise()
        started = time.perf_counter()
        while len(text) - len(prompt) < output_tokens and text[-1] not in self.pair.end_tokens:
            drafts, draft_logits = self._draft(text, before, k, rng)
            tokens = torch.tensor([[text[-1], *drafts]])
            output = self.target.forward(tokens, self._slot, torch.tensor([len(text) - 1]))
            verdict = output.logits[0, :, : self.pair.vocab_size]
            accepted, last = self._verify(verdict, draft_logits, drafts, rng)
            if k:
                self.session.commit(torch.tensor([accepted]))
            new = self._cut([*drafts[:accepted], last], output_tokens - (len(text) - len(prompt)))
            gap = _gap(verdict, draft_logits, accepted) if gaps else math.inf
            steps.append(Step(len(drafts), min(accepted, len(new)), len(new), gap))
            text += new
            if before is not None:
                before = torch.cat([before, output.hidden[0, : len(new)]])
        self._synchronise()
        return LiveText(text[len(prompt) :], steps, time.perf_counter() - started)

    def _draft(
        self, text: list[int], before: torch.Tensor | None, k: int, rng: np.random.Generator
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Up to k tokens, and the logits [V] each was chosen from."""
        if not k:
            return [], []
        known = int(self.session.lengths[0])
        new = torch.tensor([text[known:]])
        hidden = None if before is None else before[None, known:]
        logits = self.session.begin(self._slot, new, torch.tensor([new.shape[1]]), hidden)
        tokens: list[int] = []
        seen: list[torch.Tensor] = []
        while not bool(logits.isneginf().all()):
            token = choose(logits, self.sampling, self._luck(rng, 1))
            tokens.append(int(token))
            seen.append(logits[0])
            if len(tokens) == k:
                break
            logits = self.session.step(token)
        return tokens, seen

    def _verify(
        self, target: torch.Tensor, draft: list[torch.Tensor], drafts: list[int], rng: np.random.Generator
    ) -> tuple[int, int]:
        """How many of the drafts hold, and the token after them: target logits [k + 1, V]."""
        if self.sampling.greedy:
            wanted = target.argmax(-1).tolist()
            accepted = _leading([token == want for token, want in zip(drafts, wanted, strict=False)])
            return accepted, wanted[accepted]
        p = probabilities(target, self.sampling)
        if not drafts:
            return 0, int(draw(p, self._luck(rng, 1)))
        q = probabilities(torch.stack(draft), self.sampling)
        token = torch.tensor(drafts, device=p.device)
        chance = ratio(of_token(p[:-1], token), of_token(q, token))
        accepted = _leading((self._luck(rng, len(drafts)).to(chance) < chance).tolist())
        law = p[accepted] if accepted == len(drafts) else residual(p[accepted], q[accepted])
        return accepted, int(draw(law[None], self._luck(rng, 1)))

    def _cut(self, tokens: list[int], room: int) -> list[int]:
        """Up to the first end token and the length limit."""
        tokens = tokens[:room]
        ends = [index for index, token in enumerate(tokens) if token in self.pair.end_tokens]
        return tokens[: ends[0] + 1] if ends else tokens

    @staticmethod
    def _luck(rng: np.random.Generator, count: int) -> torch.Tensor:
        return torch.from_numpy(rng.random(count))


def _leading(flags: list[bool]) -> int:
    """How many are true before the first that is not."""
    return flags.index(False) if False in flags else len(flags)


def _gap(target: torch.Tensor, draft: list[torch.Tensor], accepted: int) -> float:
    """Of the positions up to the first rejection: what lies behind it decided nothing."""
    decisive = [target[: accepted + 1], *(logits[None] for logits in draft[: accepted + 1])]
    best = torch.cat(decisive).topk(2, dim=-1).values
    return float((best[:, 0] - best[:, 1]).min())
