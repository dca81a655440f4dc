"""The parts of an operator: magnitudes with one rate per group, and three ways to write an orthogonal factor.

Proposition 3.2 of Rotate the Loop leaves the orthogonal factor free; a chart says which parameters it is written in and so
which matrices can be reached: ``pairwise`` turns d/2 fixed coordinate planes, ``cayley`` covers each block's SO(w) up to a
null set, ``householder`` both components of O(w). All three start from the same Q_0 = blockdiag R(theta_i).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from looprepro.config.cell import Injection as InjectionConfig
from looprepro.models.initialisation import GeneratorOf
from looprepro.models.rotation import unit_multiplier


class Scale(NamedTuple):
    """Magnitude c = exp(-dt exp(a)) and step size dt = softplus(delta), ``[rates]`` each."""

    c: torch.Tensor
    dt: torch.Tensor


class Rates(nn.Module):
    """``count`` lifetimes in Parcae's parameters a (``log_rate``) and delta (``dt_bias``), started at c = ``decay_value``.

    Free: 2 parameters each. Fixed: c is a buffer and a does not exist; dt stays free, since it also scales what is written
    and, in the coupled angle theta = omega dt, turns.
    """

    c: torch.Tensor

    def __init__(self, count: int, fixed: bool, decay_value: float) -> None:
        super().__init__()
        self.decay_value = decay_value
        self.dt_bias = nn.Parameter(torch.empty(count))
        if fixed:
            self.log_rate = None
            self.register_buffer("c", torch.full((count,), decay_value))
        else:
            self.log_rate = nn.Parameter(torch.empty(count))
        self.initialise()

    @property
    def initial_dt(self) -> float:
        """-ln(decay_value): the step size at which a = 0 gives the wanted magnitude."""
        return -math.log(self.decay_value)

    def initialise(self) -> None:
        """a = 0 and delta = softplus^{-1}(-ln c): 0.2119354 for c = sqrt(1/5)."""
        dt = self.initial_dt
        nn.init.constant_(self.dt_bias, dt + math.log(-math.expm1(-dt)))
        if self.log_rate is not None:
            nn.init.zeros_(self.log_rate)

    def forward(self, dtype: torch.dtype | None = None) -> Scale:
        """In the parameters' type, or computed in ``dtype`` from the parameters."""
        dt = F.softplus(self.dt_bias.to(dtype or self.dt_bias.dtype))
        if self.log_rate is None:
            return Scale(self.c.to(dt.dtype), dt)
        return Scale(torch.exp(-dt * torch.exp(self.log_rate.to(dt.dtype))), dt)


def spread(values: torch.Tensor, width: int) -> torch.Tensor:
    """One value per group, ``[groups]``, to one per coordinate, ``[width]``: each group a contiguous block."""
    groups = values.shape[-1]
    return values.unsqueeze(-1).expand(*values.shape, width // groups).reshape(*values.shape[:-1], width)


def initial_omega(config: InjectionConfig, width: int, generator: GeneratorOf) -> torch.Tensor:
    """Float32 ``[width / 2]``. ``rope``: 10000^(-2i/d). ``uniform``: U(0, 1), its range evenly filled. ``normal``: N(0, 1).

    The paper does not say; with dt at 0.80 the first two keep every angle under 0.81, away from the pi that Cayley lacks.
    """
    planes = width // 2
    if config.omega_init == "uniform":
        return torch.rand(planes, generator=generator("omega"))
    if config.omega_init == "normal":
        return torch.randn(planes, generator=generator("omega"))
    return (10_000.0 ** (-2.0 * torch.arange(planes, dtype=torch.float64) / width)).to(torch.float32)


def planar_rotations(angles: torch.Tensor) -> torch.Tensor:
    """blockdiag of R(theta) = [[cos, -sin], [sin, cos]]: ``[groups, planes]`` to ``[groups, 2 planes, 2 planes]``."""
    cosine, sine = unit_multiplier(angles).unbind(-1)
    diagonal = torch.diag_embed(torch.stack((cosine, cosine), dim=-1).flatten(-2))
    below = torch.stack((sine, torch.zeros_like(sine)), dim=-1).flatten(-2)[..., :-1]
    lower = torch.diag_embed(below, offset=-1)
    return diagonal + lower - lower.mT


class Cayley(nn.Module):
    """(I - S)(I + S)^{-1} per group, S skew with its strict upper triangle stored: w (w - 1) / 2 parameters a group."""

    place: torch.Tensor

    def __init__(self, groups: int, block: int) -> None:
        super().__init__()
        self.block = block
        row, column = torch.triu_indices(block, block, offset=1)
        self.register_buffer("place", row * block + column, persistent=False)
        self.skew = nn.Parameter(torch.zeros(groups, block * (block - 1) // 2))

    def forward(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """``[groups, block, block]``, orthogonal, determinant 1."""
        skew = self.skew.to(dtype or self.skew.dtype)
        groups, block = skew.shape[0], self.block
        flat = skew.new_zeros(groups, block * block).scatter(1, self.place.expand(groups, -1), skew)
        upper = flat.view(groups, block, block)
        s = upper - upper.mT
        identity = torch.eye(block, dtype=s.dtype, device=s.device)
        # The factors commute, so the inverse may be applied from the left: one LU factorisation, no explicit inverse.
        return torch.linalg.solve(identity + s, identity - s)

    @torch.no_grad()
    def start_from(self, angles: torch.Tensor) -> None:
        """blockdiag R(theta), ``angles [groups, planes]``: S = tan(theta / 2) [[0, 1], [-1, 0]] in each plane."""
        above = torch.zeros(*angles.shape, 2, dtype=angles.dtype)
        above[..., 0] = torch.tan(angles / 2.0)
        upper = torch.diag_embed(above.flatten(-2)[..., :-1], offset=1)
        row, column = torch.triu_indices(self.block, self.block, offset=1)
        self.skew.copy_(upper[:, row, column])


class Householder(nn.Module):
    """The Q of the QR decomposition of a dense W per group, made unique by diag(R) > 0: w^2 parameters a group."""

    def __init__(self, groups: int, block: int) -> None:
        super().__init__()
        self.dense = nn.Parameter(torch.zeros(groups, block, block))

    def forward(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """``[groups, block, block]``, orthogonal; its determinant is the sign of det W, which the start decides."""
        q, r = torch.linalg.qr(self.dense.to(dtype or self.dense.dtype))
        signs = torch.where(torch.diagonal(r, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(q.dtype)
        return q * signs.unsqueeze(-2)

    @torch.no_grad()
    def start_from(self, angles: torch.Tensor) -> None:
        """W = blockdiag R(theta), ``angles [groups, planes]``."""
        self.dense.copy_(planar_rotations(angles))
