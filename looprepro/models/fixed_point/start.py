"""Truncated-normal starts (LeCun), one generator per parameter name (Fixed-Point Reasoners, appendix C)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from looprepro.models.initialisation import GeneratorOf

CUT = 2.0
"""Deviations at which the normal is cut."""


def truncated_std(cut: float = CUT) -> float:
    """Standard deviation of a standard normal cut at +-``cut``: 0.8796 at 2; dividing by it restores the wanted deviation."""
    density = math.exp(-0.5 * cut * cut) / math.sqrt(2.0 * math.pi)
    return math.sqrt(1.0 - 2.0 * cut * density / math.erf(cut / math.sqrt(2.0)))


def truncated_normal(shape: Sequence[int], std: float, generator: torch.Generator) -> Tensor:
    """Float64 of deviation ``std``, by the inverse distribution function, cut at two deviations of the normal behind it."""
    uniform = 2.0 * torch.rand(tuple(shape), generator=generator, dtype=torch.float64) - 1.0
    normal = torch.erfinv(uniform * math.erf(CUT / math.sqrt(2.0))) * math.sqrt(2.0)
    return normal * (std / truncated_std())


@torch.no_grad()
def set_truncated_normal(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    """Fill in place, drawn on the CPU."""
    parameter.copy_(truncated_normal(parameter.shape, std, generator))


def start_linear(linear: nn.Linear, generator: GeneratorOf, name: str) -> None:
    """LeCun: deviation 1 / sqrt(inputs)."""
    set_truncated_normal(linear.weight, linear.in_features**-0.5, generator(name))
