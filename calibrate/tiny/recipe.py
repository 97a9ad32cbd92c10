"""What is trained and for how long. Everything that decides the weights, apart from the text, is in this file."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_TOKENS = 2048
SHORT, LONG = 128, 256  # tokens in a row of a batch


@dataclass(frozen=True)
class Shape:
    """A Llama architecture with tied embeddings; width and feed-forward in floats."""

    width: int
    layers: int
    heads: int
    feed_forward: int


@dataclass(frozen=True)
class Schedule:
    """Steps of BATCH_TOKENS tokens. Learning rates are those of Muon (matrices) and AdamW (embedding, norms).

    copying: steps on repeated random tokens before the text, meant to teach copying from the context; 200 were too few
        for twelve layers (loss 7.23 against 7.62 of a guess), and the committed target does not copy
    long_share: the last part of the text steps, in rows of LONG tokens
    decay_share: the last part of the text steps, in which the rates fall linearly to zero
    """

    steps: int
    copying: int = 0
    warm_up: int = 20
    long_share: float = 0.3
    decay_share: float = 0.7
    muon: float = 0.02
    adamw: float = 4e-3
    seed: int = 0

    @property
    def total(self) -> int:
        return self.copying + self.steps

    def rate(self, step: int) -> float:
        """Factor of both learning rates at `step` (from 0, copying included)."""
        return min(1.0, (step + 1) / self.warm_up, (self.total - step) / (self.decay_share * self.steps))

    def length(self, step: int) -> int:
        """Tokens in a row at `step`."""
        return LONG if step >= self.total - round(self.long_share * self.steps) else SHORT


@dataclass(frozen=True)
class DraftRecipe:
    """from_target: the layers of the target it starts from, with the target's embedding; none: random weights."""

    shape: Shape
    schedule: Schedule
    from_target: tuple[int, ...] = ()


TARGET = Shape(width=144, layers=12, heads=3, feed_forward=384)
TARGET_SCHEDULE = Schedule(steps=1350, copying=200)
SAMPLED_ROWS = 1024  # texts of LONG tokens that the target writes for its drafts
DRAFT_RECIPES = {
    "draft-s": DraftRecipe(Shape(width=96, layers=1, heads=3, feed_forward=256), Schedule(steps=250, long_share=1)),
    "draft-m": DraftRecipe(
        Shape(width=144, layers=2, heads=3, feed_forward=384),
        Schedule(steps=500, long_share=1, adamw=2e-3, seed=1),
        from_target=(0, 11),
    ),
}
