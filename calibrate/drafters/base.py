"""What a draft is to the recorder, to the live loop and to whoever times it."""

from __future__ import annotations

from typing import Any, Protocol

import torch

CHUNK = 512
"""Tokens that a prefill feeds at a time: attention masks stay small."""


class Session(Protocol):
    """A draft at work on up to `max_num_seqs` sequences, each in its slot.

    A round is `begin` (the text that is new since the last round), `step` for each further draft token, and `commit`.
    `begin` and `step` answer with the draft's logits of the next token, float32[B, V] over the common vocabulary; -inf
    for every token where it has nothing to propose. Which token is taken is the caller's affair.

    With hidden states (`Drafter.needs_hidden`) each token comes with the target's last hidden state of the token
    before it: [B, q, H], zeros for the first token of all.
    """

    lengths: torch.Tensor
    """int64[max_num_seqs] on the CPU: tokens of the text that are, rightly, in the cache. The caller feeds those after
    them: always one at least, and two after full acceptance, when the last draft token was never fed."""

    def fill(self, slot: int, tokens: torch.Tensor, hidden: torch.Tensor | None = None) -> None:
        """Text int64[q] (hidden [q, H]) after what the slot holds: the prefill."""

    def begin(
        self, slots: torch.Tensor, tokens: torch.Tensor, counts: torch.Tensor, hidden: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Start a round with new text int64[B, q], padded on the right; counts int64[B] of it, >= 1, are real."""

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """Go on after draft tokens int64[B], in the rows of `begin` or of the last `keep`."""

    def keep(self, rows: torch.Tensor) -> None:
        """Go on with these of the current rows alone, int64[n] ascending, on the CPU."""

    def commit(self, accepted: torch.Tensor) -> None:
        """End a round: int64[B] leading draft tokens have become text, in the rows of `begin`, those left out later
        included. Lengths grow by those in the cache already."""

    def fork(self, source: int, to: torch.Tensor, lengths: torch.Tensor) -> None:
        """Let slots int64[n] hold the first int64[n] tokens of the text of another."""

    def reset(self, slot: int) -> None:
        """Empty a slot."""


class ScanningSession(Session, Protocol):
    """The session of a draft whose distribution depends on the text alone."""

    def scan(self, slot: int, tokens: torch.Tensor) -> torch.Tensor:
        """`fill`, with the logits after each token: float32[q, V]."""


class Drafter(Protocol):
    """A way to draft for one target.

    kind                one of sim.replay.profile.DRAFT_KINDS
    name                as the user gave it
    needs_hidden        whether tokens come with the target's hidden states
    first_output_token  the first output token it can draft, from 0; EAGLE-style ones need the target's first
    position_only       whether its distribution depends on the text alone, not on where drafting began: then its
                        sessions can `scan`
    shares_weights      whether its weights are the target's own
    model               what a ModelRunner can time; None where no model is run
    """

    kind: str
    name: str
    needs_hidden: bool
    first_output_token: int
    position_only: bool
    shares_weights: bool
    model: Any

    def session(self, max_num_seqs: int, max_model_len: int) -> Session:
        """New slots. Raises InputError if they do not fit the memory."""
