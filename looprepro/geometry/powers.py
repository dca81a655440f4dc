"""What the powers of an operator do to a vector: the norm of A^t u, its direction, and how far the direction turns (C39)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from looprepro.geometry.operator import GeometryError, require_operator


@dataclass(frozen=True, eq=False)
class Powers:
    """A^t u for t = 0..T and several u, as direction and size."""

    directions: Tensor
    """Float64 ``[T + 1, probes, d]``: A^t u / |A^t u|."""
    log_norms: Tensor
    """Float64 ``[T + 1, probes]``: the natural logarithm of |A^t u|."""

    def turning(self) -> Tensor:
        """Sine of the angle between A^t u and A^{t+1} u, float64 ``[T, probes]``.

        Constant in t for A = cQ; tends to 0 where one real eigenvalue of positive sign and largest modulus takes over
        (P3.4). As a sine it does not tell a step from the reversed one.
        """
        # Step by step: the intermediates of one step stay in the cache, those of all steps take ten times as long.
        sines = torch.empty_like(self.log_norms[1:])
        for t in range(len(sines)):
            sines[t] = _sine(self.directions[t + 1], self.directions[t])
        return sines

    def gram(self) -> Tensor:
        """The cosines between all directions of one probe, float64 ``[probes, T + 1, T + 1]``."""
        directions = self.directions.transpose(0, 1)
        return directions @ directions.transpose(1, 2)


def powers(matrix: Tensor, probes: Tensor, budget: int) -> Powers:
    """Directions and log norms of A^t u for t = 0..``budget``; ``probes`` is float64 ``[probes, d]``, one u per row.

    Step by step, renormalised at each: 0.447^48 would underflow in the Gram matrix's squares, and the cosine does not
    change. :class:`GeometryError` where a probe is, or comes to, zero: it has no direction.
    """
    matrix = require_operator(matrix)
    if budget < 0:
        raise GeometryError(f"budget {budget} is negative", "Ask for T >= 0")
    if probes.ndim != 2 or probes.shape[1] != matrix.shape[0] or probes.dtype != torch.float64:
        raise GeometryError(
            f"probes are {probes.dtype} {list(probes.shape)} for an operator of width {matrix.shape[0]}",
            "Give float64 probes [count, width]",
        )
    directions = torch.empty(budget + 1, *probes.shape, dtype=torch.float64)
    log_norms = torch.empty(budget + 1, probes.shape[0], dtype=torch.float64)
    state, logs = probes, torch.zeros(probes.shape[0], dtype=torch.float64)
    for t in range(budget + 1):
        if t:
            state = directions[t - 1] @ matrix.T
        norm = state.norm(dim=1)
        if not bool((norm > 0).all()):
            raise GeometryError(f"A^{t} u is zero for a probe u and has no direction", "Use an invertible operator")
        logs = logs + norm.log()
        torch.div(state, norm[:, None], out=directions[t])
        log_norms[t] = logs
    return Powers(directions, log_norms)


def _sine(x: Tensor, y: Tensor) -> Tensor:
    """Of unit vectors ``[..., d]``. By the rejection: sqrt(1 - cos^2) loses half the digits of a small angle."""
    return (x - (x * y).sum(dim=-1, keepdim=True) * y).norm(dim=-1)
