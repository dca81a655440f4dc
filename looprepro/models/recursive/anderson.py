"""Anderson acceleration of a fixed-point iteration, per sample (Anderson 1965), as DEQ and Attractor use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

REGULARISATION = 1e-4
"""Added to the diagonal of the normal equations, relative to its mean, against parallel residuals."""


@dataclass(frozen=True, eq=False)
class Accelerated:
    """Where the acceleration stopped."""

    z: Tensor
    """``[rows, ...]``: the f of smallest residual seen."""
    residual: Tensor
    """|f - z| / |f| in the L2 norm at it, float ``[rows]``."""
    count: Tensor
    """Evaluations of f until a row was below the tolerance, int64 ``[rows]``; the number of all where it never was."""


@torch.no_grad()
def anderson(
    function: Callable[[Tensor], Tensor], z: Tensor, memory: int, iterations: int, tolerance: float, minimum: int = 1
) -> Accelerated:
    """At most ``iterations`` evaluations of ``function``, each row combining its last ``memory`` residuals.

    The next point is sum_i a_i f(z_i) with sum a_i = 1 minimising |sum_i a_i (f(z_i) - z_i)|. A row that is below the tolerance
    after at least ``minimum`` evaluations keeps its result; the loop ends when all are.
    """
    shape, rows = z.shape, z.shape[0]
    point = z.reshape(rows, -1)
    images: list[Tensor] = []
    residuals: list[Tensor] = []
    best = torch.full((rows,), float("inf"), dtype=point.dtype, device=z.device)
    kept = point
    done = torch.zeros(rows, dtype=torch.bool, device=z.device)
    count = torch.full((rows,), iterations, dtype=torch.int64, device=z.device)
    for number in range(1, iterations + 1):
        image = function(point.reshape(shape)).reshape(rows, -1).to(point.dtype)
        residual = image - point
        size = residual.norm(dim=1) / (image.norm(dim=1) + 1e-9)
        better = (size < best) & ~done
        best, kept = torch.where(better, size, best), torch.where(better[:, None], image, kept)
        now = (best < tolerance) & ~done & (number >= minimum)
        count, done = torch.where(now, number, count), done | now
        if bool(done.all()):
            break
        images, residuals = [*images, image][-memory:], [*residuals, residual][-memory:]
        point = _combine(torch.stack(images, dim=1), torch.stack(residuals, dim=1))
    return Accelerated(kept.reshape(shape), best, count)


def _combine(images: Tensor, residuals: Tensor) -> Tensor:
    """``[rows, width]`` from images and residuals ``[rows, m, width]``: weights that sum to 1 and make the residual small."""
    gram = residuals @ residuals.mT
    size = gram.diagonal(dim1=1, dim2=2).mean(dim=1).clamp(min=torch.finfo(gram.dtype).tiny)
    identity = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
    ones = torch.ones(*gram.shape[:2], 1, dtype=gram.dtype, device=gram.device)
    weights = torch.linalg.solve(gram / size[:, None, None] + REGULARISATION * identity, ones).mT
    return (weights / weights.sum(dim=2, keepdim=True) @ images).squeeze(1)
