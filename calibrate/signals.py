"""Probabilities of both models after the same sampling settings, and what is measured on a pair of them.

p is the target's distribution at a position, q the draft's; logits and probabilities are torch tensors whose last axis
is the vocabulary. A draft that has nothing to propose gives logits of -inf everywhere: its q is 0 for every token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from traces.errors import InputError

FLOOR = 1e-8
"""Probabilities below it count as it inside a logarithm of the KL divergence: where q is 0 a token costs 18.42 nats
at most instead of infinitely many. The constant of DSDE's code (arXiv 2509.01083)."""

GREEDY_BELOW = 1e-5
"""Temperatures below it are greedy, as in vLLM."""

NO_RESIDUAL = 1e-6
"""Sum of (p - q)+ below which p and q are the same but for rounding."""


@dataclass(frozen=True)
class Sampling:
    """Settings that both models share. Raises InputError outside the ranges named.

    temperature   0 or more; 0 is greedy: the distribution is 1 on the likeliest token
    top_p         above 0 to 1: the smallest set of likeliest tokens with at least this probability
    top_k         0 (all) or the number of likeliest tokens that are kept
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(f"temperature: expected a number of at least 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p: expected a number above 0 and up to 1, got {self.top_p}")
        if self.top_k < 0:
            raise InputError(f"top_k: expected 0 (all) or a number of tokens, got {self.top_k}")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


SOFTMAX = Sampling(temperature=1.0)


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """What tokens are drawn from and accepted by: float32 of the logits' shape; one-hot when greedy."""
    logits = logits.float()
    if sampling.greedy:
        hot = torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        return _or_nothing(hot, logits)
    logits = (logits - logits.amax(-1, keepdim=True)) / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        least = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    found = logits.softmax(-1)
    if sampling.top_p < 1:
        ranked, order = found.sort(dim=-1, descending=True)
        # a token stays if those before it do not reach top_p: the likeliest always does
        ranked = ranked.masked_fill(ranked.cumsum(-1) - ranked >= sampling.top_p, 0.0)
        found = torch.zeros_like(found).scatter_(-1, order, ranked)
        found = found / found.sum(-1, keepdim=True)
    return _or_nothing(found, logits)


def signal_probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """What entropies and divergences are taken of: the plain softmax when greedy, where one-hot says little."""
    return probabilities(logits, SOFTMAX if sampling.greedy else sampling)


def _or_nothing(found: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """0 everywhere in rows without a finite logit."""
    nothing = logits.isneginf().all(-1, keepdim=True) | logits.isnan().any(-1, keepdim=True)
    return found.masked_fill(nothing, 0.0)


def entropy(p: torch.Tensor) -> torch.Tensor:
    """-sum p ln p in nats, over the last axis."""
    return torch.special.entr(p).sum(-1)


def kl_divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats with both floored at `FLOOR` inside the logarithm: finite, not negative."""
    return (p * (p.clamp(min=FLOOR).log() - q.clamp(min=FLOOR).log())).sum(-1).clamp(min=0.0)


def js_distance(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Square root of the Jensen-Shannon divergence in nats: 0 to sqrt(ln 2) = 0.8326."""
    middle = (0.5 * (p + q)).clamp(min=torch.finfo(p.dtype).tiny)
    divergence = 0.5 * (torch.xlogy(p, p / middle) + torch.xlogy(q, q / middle)).sum(-1)
    return divergence.clamp(min=0.0, max=math.log(2)).sqrt()


def overlap(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """beta = sum min(p, q): the chance that a token drawn from q is accepted (arXiv 2211.17192)."""
    return torch.minimum(p, q).sum(-1)


def residual(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Normalised (p - q)+: what follows a rejection; p itself where the two are equal but for rounding."""
    more = (p - q).clamp(min=0.0)
    total = more.sum(-1, keepdim=True)
    return torch.where(total > NO_RESIDUAL, more / total.clamp(min=NO_RESIDUAL), p)


def of_token(p: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """Probability of one token a row: p [..., V], token int64[...]."""
    return p.gather(-1, token[..., None])[..., 0]


def ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """min(1, numerator / denominator); 0 where the denominator is 0.

    p(x) / q(x) is the chance that a draft's token x is accepted; on a given trajectory y it is q(y) / p(y).
    """
    return torch.where(denominator > 0, (numerator / denominator.clamp(min=1e-38)).clamp(max=1.0), 0.0)


def draw(p: torch.Tensor, luck: torch.Tensor) -> torch.Tensor:
    """A token a row by the inverse of the cumulative distribution: p [B, V] of any positive sum, luck [B] in [0, 1).

    Tokens of probability 0 are never drawn; the same luck and law give the same token on any batch. int64[B]
    """
    cumulative = p.double().cumsum(-1)
    wanted = luck.to(cumulative)[:, None] * cumulative[:, -1:]
    found = torch.searchsorted(cumulative, wanted, right=True)[:, 0]
    last = (p > 0).long().cumsum(-1).argmax(-1)  # where rounding would lead past the last possible token
    return torch.minimum(found, last)


def compare(
    target_logits: torch.Tensor, draft_logits: torch.Tensor, token: torch.Tensor, sampling: Sampling
) -> dict[str, torch.Tensor]:
    """The signals of sim.replay.windows.SIGNALS, of the logits' shape without its last axis; `token` is proposed."""
    p, q = signal_probabilities(target_logits, sampling), signal_probabilities(draft_logits, sampling)
    return {
        "draft_entropy": entropy(q),
        "draft_prob": of_token(q, token),
        "kld": kl_divergence(p, q),
        "jsd": js_distance(p, q),
        "target_entropy": entropy(p),
        "target_prob": of_token(p, token),
    }
