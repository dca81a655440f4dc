"""Operators whose geometry is known: orthogonal matrices, planes of rotation, normal matrices in a random basis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def orthogonal() -> Callable[[int, int], Tensor]:
    """``orthogonal(width, seed)``: a random orthogonal matrix, float64."""

    def build(width: int, seed: int = 0) -> Tensor:
        entries = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        q, r = torch.linalg.qr(entries)
        return q * r.diagonal().sign()

    return build


@pytest.fixture(scope="session")
def planes() -> Callable[[Sequence[float], Sequence[float]], Tensor]:
    """``planes(radii, angles)``: blockdiag of r_i R(theta_i), so its eigenvalues are r_i e^{+-i theta_i}."""

    def build(radii: Sequence[float], angles: Sequence[float]) -> Tensor:
        r, theta = torch.tensor(radii, dtype=torch.float64), torch.tensor(angles, dtype=torch.float64)
        cos, sin = r * theta.cos(), r * theta.sin()
        rows = torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)
        return torch.block_diag(*rows)

    return build
