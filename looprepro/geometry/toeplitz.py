"""The Toeplitz defect of an operator (Rotate the Loop, eq. 8 and appendix B).

For one probe u: |G_u - P(G_u)|_F / |G_u|_F, where P replaces every diagonal by its mean and so gives the nearest Toeplitz
matrix in Frobenius norm. The paper leaves open the range t = 0..T, the ratio of norms and the mean over probes; those are
our reading. Zero for A = cQ and every u (P3.5); for a normal A, zero for every u only then (PB.1).

The theory of several groups (P3.6) promises zero only for a write inside one group: with G = 2 and two magnitudes a probe on
the whole sphere sees a defect, one inside a V_g does not. So there are two measurements, and a report names which it shows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from looprepro.geometry.gram import gram
from looprepro.geometry.operator import diagonal_blocks
from looprepro.geometry.probes import COUNT, SEED, sphere


def nearest_toeplitz(grams: Tensor) -> Tensor:
    """Every diagonal replaced by its mean: ``[..., n, n]`` to ``[..., n, n]``."""
    lag, length = _lags(grams.shape[-1])
    means = torch.zeros(*grams.shape[:-2], len(length), dtype=grams.dtype)
    means.index_add_(-1, lag, grams.flatten(-2))
    return (means / length)[..., lag].reshape(grams.shape)


def defects(grams: Tensor) -> Tensor:
    """|G - P(G)|_F / |G|_F of each matrix: ``[..., n, n]`` to ``[...]``.

    From the difference itself: |G|^2 - |P(G)|^2 is equal to its square, but cancels to 1e-8 where the defect is 0.
    """
    return torch.linalg.matrix_norm(grams - nearest_toeplitz(grams)) / torch.linalg.matrix_norm(grams)


def sphere_defects(matrix: Tensor, budgets: Sequence[int], count: int = COUNT, seed: int = SEED) -> dict[int, float]:
    """The defect at each budget T, a mean over ``count`` probes uniform on the whole sphere, as the paper describes it.

    ``matrix`` is float64 ``[d, d]``. The powers are computed once, for the largest budget.
    """
    return mean_defects(gram(matrix, sphere(matrix.shape[-1], count, seed), max(budgets)), budgets)


def blockwise_defects(
    matrix: Tensor, groups: int, budgets: Sequence[int], count: int = COUNT, seed: int = SEED
) -> dict[int, float]:
    """The defect at each budget T for probes inside one V_g, a mean over ``count`` probes in each of ``groups`` groups.

    The probes are those of :func:`looprepro.geometry.probes.blockwise`. Each V_g must be mapped into itself, as every
    method of this project does with its own groups (:class:`~looprepro.geometry.operator.GeometryError` otherwise), so
    each block is measured by itself at its own width.
    """
    blocks = diagonal_blocks(matrix, groups)
    parts = sphere(matrix.shape[0], count, seed).chunk(groups, dim=1)
    each = [mean_defects(gram(block, part, max(budgets)), budgets) for block, part in zip(blocks, parts, strict=True)]
    return {budget: sum(means[budget] for means in each) / groups for budget in budgets}


def mean_defects(grams: Tensor, budgets: Sequence[int]) -> dict[int, float]:
    """Mean over probes of :func:`defects` at each budget T < n, from Gram matrices ``[probes, n, n]`` of the powers 0..n-1.

    As exact as :func:`defects`, the oracle of its tests, in half the time: the lower triangle says everything, and read row
    by row the triangle of a smaller budget is the start of it.
    """
    row, column = torch.tril_indices(grams.shape[-1], grams.shape[-1])
    triangle = grams.flatten(1).index_select(1, row * grams.shape[-1] + column)
    lag = row - column
    found = {}
    for budget in budgets:
        size = (budget + 1) * (budget + 2) // 2
        entries, lags = triangle[:, :size], lag[:size]
        means = torch.zeros(len(grams), budget + 1, dtype=grams.dtype).index_add_(1, lags, entries)
        means /= torch.arange(budget + 1, 0, -1)
        counted = torch.where(lags > 0, 2.0, 1.0).to(grams.dtype)  # an entry off the diagonal stands there twice
        apart = (entries - means.index_select(1, lags)).square_() @ counted
        found[budget] = (apart / (entries.square() @ counted)).sqrt().mean().item()
    return found


def _lags(size: int) -> tuple[Tensor, Tensor]:
    """The number of the diagonal that each entry lies on, row by row, ``[size^2]``; the diagonals' lengths ``[2 size - 1]``."""
    place = torch.arange(size)
    lag = (place[None, :] - place[:, None] + size - 1).reshape(-1)
    return lag, torch.bincount(lag)
