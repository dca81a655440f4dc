"""Gram matrices of directions along the powers: G_u[t, s] = <A^t u, A^s u> / (|A^t u| |A^s u|) (eq. 5, P3.5)."""

from __future__ import annotations

from torch import Tensor

from looprepro.geometry.powers import powers


def gram(matrix: Tensor, probes: Tensor, budget: int) -> Tensor:
    """One matrix of cosines per probe, t, s = 0..``budget``: float64 ``[probes, T + 1, T + 1]``.

    ``matrix`` is float64 ``[d, d]``, ``probes`` float64 ``[probes, d]``. The matrices of a smaller budget are the leading
    blocks of these. Raises :class:`~looprepro.geometry.operator.GeometryError` as :func:`powers` does.
    """
    return powers(matrix, probes, budget).gram()
