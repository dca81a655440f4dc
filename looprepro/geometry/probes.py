"""Probe directions: seeded, uniform on the unit sphere, the same for all methods of one width."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.geometry.operator import GeometryError

COUNT = 256
"""Probes per measurement (Rotate the Loop, appendix B)."""
SEED = 0
"""The fixed seed that all methods share; the paper states that it is fixed, not its value."""


def sphere(width: int, count: int = COUNT, seed: int = SEED) -> Tensor:
    """Float64 ``[count, width]``, unit rows uniform on the sphere. Probe i does not depend on ``count``."""
    normal = _normal(width, count, seed)
    return normal / normal.norm(dim=1, keepdim=True)


def blockwise(width: int, groups: int, count: int = COUNT, seed: int = SEED) -> Tensor:
    """The sphere's probes projected on each V_g and scaled back to length 1: float64 ``[groups, count, width]``.

    V_g is the g-th of ``groups`` contiguous equal blocks of coordinates; each probe is uniform on its unit sphere.
    """
    if groups < 1 or width % groups:
        raise GeometryError(f"{groups} groups do not divide width {width}", "Use a divisor of the width")
    parts = sphere(width, count, seed).reshape(count, groups, width // groups)
    parts = parts / parts.norm(dim=2, keepdim=True)
    probes = torch.zeros(groups, count, groups, width // groups, dtype=torch.float64)
    for g in range(groups):
        probes[g, :, g] = parts[:, g]
    return probes.reshape(groups, count, width)


def _normal(width: int, count: int, seed: int) -> Tensor:
    """Standard normal ``[count, width]`` by Box and Muller: its joint law, unlike a truncated one, has no preferred axis."""
    pairs = (width + 1) // 2
    drawn = randomness.words(seed, randomness.PROBES, 0, torch.arange(count), 2 * pairs)
    u = (drawn.to(torch.float64) + 0.5) / 2.0**32  # inside (0, 1), so the logarithm is finite
    radius = (-2.0 * u[:, :pairs].log()).sqrt()
    angle = 2.0 * math.pi * u[:, pairs:]
    return torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)[:, :width]
