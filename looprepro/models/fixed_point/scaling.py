"""Residual scaling: a1, b1 inside an iteration, a2, b2 across iterations, and how a1 and a2 are learned.

    z^l = a1 z^{l-1} + b1 f^l(Norm(z^{l-1})),  l = 1..2L;        z^0_{i+1} = a2 z^{2L}_i + b2 x
    b2 = 1 - a2 a1^{2L};        b1 = b2 (1 - a1) / (1 - a1^{2L})

(Fixed-Point Reasoners, equation 3 and appendix A.1). With sub-layers bounded by c this makes limsup |z^0_i| <= a2 c + |x|.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from looprepro.config.reasoners import LoopFields
from looprepro.models.fixed_point.start import set_truncated_normal
from looprepro.models.initialisation import GeneratorOf


class Coefficients(NamedTuple):
    """a1, b1, a2, b2, each broadcastable to ``[rows, positions, width]``; None stands for 1 where nothing is scaled."""

    a1: Tensor | None
    b1: Tensor | None
    a2: Tensor | None
    b2: Tensor | None


UNSCALED = Coefficients(None, None, None, None)


def closed_forms(a1: Tensor, a2: Tensor, sublayers: int) -> Coefficients:
    """b1 and b2 to given a1 and a2 in [0, 1]. (1 - a1) / (1 - a1^{2L}) is written as 1 / (1 + a1 + ... + a1^{2L-1}), which is
    the same and needs no guard at a1 = 1."""
    series = torch.ones_like(a1)
    for _ in range(sublayers - 1):
        series = series * a1 + 1.0
    b2 = 1.0 - a2 * a1.pow(sublayers)
    return Coefficients(a1, b2 / series, a2, b2)


def scaled(factor: Tensor | None, value: Tensor) -> Tensor:
    """factor * value, where None is 1."""
    return value if factor is None else factor * value


class Scaling(nn.Module):
    """The coefficients of one loop. Learned values pass a sigmoid, so 0 < a < 1 always, and are not decayed."""

    fixed: Tensor

    def __init__(self, config: LoopFields) -> None:
        super().__init__()
        self.config = config
        self.sublayers = 2 * config.layers
        width, kind = config.width, config.residual_scale
        if kind in ("input_independent", "outer_only"):
            if kind == "input_independent":
                self.alpha_1 = nn.Parameter(torch.empty(width))
            self.alpha_2 = nn.Parameter(torch.empty(width))
        elif kind == "input_dependent":
            self.gate_1, self.gate_2 = nn.Linear(width, width), nn.Linear(width, width)
        elif kind == "fixed":
            self.register_buffer("fixed", torch.tensor([config.alpha_1, config.alpha_2]), persistent=False)

    def forward(self, z: Tensor) -> Coefficients:
        """Of the iteration that starts from ``z [rows, positions, width]``."""
        kind = self.config.residual_scale
        if kind == "none":
            return UNSCALED
        if kind == "outer_only":
            a2 = torch.sigmoid(self.alpha_2)
            return Coefficients(None, None, a2, 1.0 - a2)
        a1, a2 = self.alphas(z)
        return closed_forms(a1, a2, self.sublayers)

    def alphas(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(a1, a2); ``[width]``, ``[rows, positions, width]`` where they depend on ``z``, or a number each."""
        kind = self.config.residual_scale
        if kind == "input_dependent":
            return torch.sigmoid(self.gate_1(z)).to(z.dtype), torch.sigmoid(self.gate_2(z)).to(z.dtype)
        if kind == "fixed":
            return self.fixed[0], self.fixed[1]
        return torch.sigmoid(self.alpha_1), torch.sigmoid(self.alpha_2)

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        """Every a1 and a2 at its configured value; the input-dependent ones depend on the input from small weights on."""
        for number, alpha in ((1, self.config.alpha_1), (2, self.config.alpha_2)):
            logit = math.log(alpha / (1.0 - alpha))
            vector, gate = getattr(self, f"alpha_{number}", None), getattr(self, f"gate_{number}", None)
            if vector is not None:
                nn.init.constant_(vector, logit)
            if gate is not None:
                set_truncated_normal(gate.weight, self.config.width**-0.5, generator(f"{name}.gate_{number}"))
                nn.init.constant_(gate.bias, logit)
