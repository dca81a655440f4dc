"""The host model's "scaled-zero" initialisation with orthogonal matrices, one generator per parameter name.

Parcae's rule: base std = sqrt(2 / (5 d)) everywhere, output projections exactly zero, so that every block starts as the
identity. "Orthogonal with std s" means: orthonormal rows or columns times s sqrt(max(rows, columns)), so that entries
have standard deviation s and all singular values are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

GeneratorOf = Callable[[str], torch.Generator]
"""From a parameter's name to its generator (randomness.parameter_generator with the seed bound)."""

TRUNCATION = 2.0
"""Deviations at which the normal behind an orthogonal draw is cut."""


def base_std(width: int) -> float:
    """sqrt(2 / (5 width)): of embeddings, input projections and the initial state."""
    return math.sqrt(2.0 / (5.0 * width))


def orthogonal(rows: int, columns: int, std: float, generator: torch.Generator) -> torch.Tensor:
    """Float64 ``[rows, columns]`` with all singular values std sqrt(max(rows, columns)).

    Truncated normal, QR, signs fixed by diag(R) so that the draw is unique; transposed where rows < columns.
    """
    tall, short = max(rows, columns), min(rows, columns)
    inside = math.erf(TRUNCATION / math.sqrt(2.0))
    # By the inverse distribution function: torch's own truncated normal has changed its algorithm between versions.
    uniform = 2.0 * torch.rand(tall, short, generator=generator, dtype=torch.float64) - 1.0
    q, r = torch.linalg.qr(torch.erfinv(uniform * inside) * math.sqrt(2.0))
    q = q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0) * (std * math.sqrt(tall))
    return q if rows >= columns else q.T


@torch.no_grad()
def set_orthogonal(parameter: torch.Tensor, std: float, generator: torch.Generator) -> None:
    """Fill a matrix in place with :func:`orthogonal`; drawn on the CPU, so equal on every device."""
    rows, columns = parameter.shape
    parameter.copy_(orthogonal(rows, columns, std, generator))


@torch.no_grad()
def set_uniform(parameter: torch.Tensor, bound: float, generator: torch.Generator) -> None:
    """Fill in place with U(-bound, bound), drawn on the CPU."""
    parameter.copy_((2.0 * torch.rand(parameter.shape, generator=generator) - 1.0) * bound)


@torch.no_grad()
def set_normal(parameter: torch.Tensor, std: float, generator: torch.Generator) -> None:
    """Fill in place with N(0, std^2), drawn on the CPU."""
    parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)
