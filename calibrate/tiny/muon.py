"""Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), written from its description.

The momentum of every matrix is replaced by the nearest semi-orthogonal matrix, found by five steps of a quintic
Newton-Schulz iteration. Matrices of one shape go through it together, which matters on a CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

QUINTIC = (3.4445, -4.7750, 2.0315)  # the description's coefficients: fast at small singular values, not exact
ITERATIONS = 5
MOMENTUM = 0.95


def orthogonalise(matrices: Tensor) -> Tensor:
    """Push the singular values of (n, rows, columns) matrices, rows <= columns, towards 1 (0.7 to 1.2)."""
    linear, cubic, quintic = QUINTIC
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = linear * x + (cubic * gram + quintic * gram @ gram) @ x
    return x


class Muon:
    """Muon with Nesterov momentum for matrices of shape (out, in); the learning rate is an argument of `step`."""

    def __init__(self, matrices: Sequence[Tensor]) -> None:
        by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            by_shape[tuple(matrix.shape)].append(matrix)
        self._groups = [(group, torch.zeros(len(group), *shape)) for shape, group in by_shape.items()]

    def step(self, learning_rate: float) -> None:
        """Update from the gradients and forget them. Steps of tall matrices are larger, by sqrt(out / in)."""
        with torch.no_grad():
            self._update(learning_rate)

    def _update(self, learning_rate: float) -> None:
        for group, momentum in self._groups:
            gradients = torch.stack([matrix.grad for matrix in group])
            momentum.lerp_(gradients, 1 - MOMENTUM)
            update = torch.lerp(gradients, momentum, MOMENTUM)
            rows, columns = momentum.shape[1:]
            update = orthogonalise(update) if rows <= columns else orthogonalise(update.mT).mT
            scale = learning_rate * max(1.0, rows / columns) ** 0.5
            for matrix, change in zip(group, update, strict=True):
                matrix.sub_(change, alpha=scale)
                matrix.grad = None
