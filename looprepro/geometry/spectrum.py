"""Eigenvalues of an operator, in a reproducible order, and the subspace that its powers turn to."""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro.geometry.operator import GeometryError, require_operator


def spectrum(matrix: Tensor) -> Tensor:
    """All eigenvalues of a float64 ``[d, d]`` matrix: complex128 ``[d]``, largest modulus first.

    Moduli that agree to 10 digits count as equal and are ordered by angle from -pi to pi, so that rounding does not decide.
    """
    values = torch.linalg.eigvals(require_operator(matrix))
    largest = values.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    by_angle = values[torch.argsort(values.angle(), stable=True)]
    level = (by_angle.abs() / largest * 1e10).round()
    return by_angle[torch.argsort(level, descending=True, stable=True)]


def leading_subspace(matrix: Tensor, tolerance: float = 1e-9) -> tuple[Tensor, float]:
    """E of P3.4 for a normal matrix: an orthonormal basis ``[d, dim E]`` of the span of the eigenvectors of largest modulus
    r_1, and the rate max_{j not in E} |lambda_j| / r_1 at which the powers' directions approach E (0 where E is everything).

    Moduli within a relative ``tolerance`` of r_1 count as equal to it. Raises :class:`GeometryError` where the matrix is not
    normal to that tolerance: its singular vectors then span something else.
    """
    matrix = require_operator(matrix)
    # A normal matrix has singular values |lambda_j|, and the right singular vectors of the largest span E.
    _, moduli, rows = torch.linalg.svd(matrix)
    commutator = matrix @ matrix.T - matrix.T @ matrix
    if bool(torch.linalg.matrix_norm(commutator) > tolerance * torch.linalg.matrix_norm(matrix) ** 2):
        raise GeometryError("the operator is not normal, so P3.4 says nothing about it", "Use a normal operator")
    dimension = int((moduli >= moduli[0] * (1.0 - tolerance)).sum())
    rate = (moduli[dimension] / moduli[0]).item() if dimension < len(moduli) else 0.0
    return rows[:dimension].T, rate
