"""What every measurement asks of its matrix, and the error that says which of it fails."""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro.files.errors import LoopreproError


class GeometryError(LoopreproError):
    """A matrix, or probes, that a measurement has no meaning for."""


def require_operator(matrix: Tensor) -> Tensor:
    """``matrix`` itself, detached, when it is a finite square float64 matrix on the CPU; :class:`GeometryError` otherwise.

    Nothing is converted: entries that were rounded to float32 give a defect near 1e-7 where the truth is 0.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] == 0:
        raise GeometryError(f"the operator has shape {list(matrix.shape)}, not [d, d]", "Return a square matrix from matrix()")
    if matrix.dtype != torch.float64 or matrix.device.type != "cpu":
        raise GeometryError(
            f"the operator is {matrix.dtype} on {matrix.device}, but the geometry is measured in float64 on the CPU",
            "Convert the parameters with .double().cpu() before assembling the matrix",
        )
    if not bool(torch.isfinite(matrix).all()):
        raise GeometryError("the operator has entries that are not finite", "Take a checkpoint from before the run diverged")
    return matrix.detach()


def diagonal_blocks(matrix: Tensor, groups: int) -> list[Tensor]:
    """The G equal diagonal blocks ``[d/G, d/G]`` of a block-diagonal operator, so each V_g is mapped into itself.

    :class:`GeometryError` where G does not divide d, or an entry outside the blocks is not 0.
    """
    matrix = require_operator(matrix)
    width = matrix.shape[0]
    if groups < 1 or width % groups:
        raise GeometryError(f"{groups} groups do not divide width {width}", "Use a divisor of the width")
    size = width // groups
    cut = matrix.reshape(groups, size, groups, size)
    outside = ~torch.eye(groups, dtype=torch.bool)
    if bool((cut.transpose(1, 2)[outside] != 0).any()):
        raise GeometryError(
            f"the operator mixes the {groups} groups of {size} neighbouring coordinates: a write inside one leaves it",
            "looprepro geometry CELL --groups measures inside other groups",
        )
    return [cut[g, :, g, :] for g in range(groups)]
