"""Eigenvalues of an operator, in a reproducible order."""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro.geometry.operator import require_operator


def spectrum(matrix: Tensor) -> Tensor:
    """All eigenvalues of a float64 ``[d, d]`` matrix: complex128 ``[d]``, largest modulus first.

    Moduli that agree to 10 digits count as equal and are ordered by angle from -pi to pi, so that rounding does not decide.
    """
    values = torch.linalg.eigvals(require_operator(matrix))
    largest = values.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    by_angle = values[torch.argsort(values.angle(), stable=True)]
    level = (by_angle.abs() / largest * 1e10).round()
    return by_angle[torch.argsort(level, descending=True, stable=True)]
