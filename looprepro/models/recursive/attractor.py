"""Attractor: a backbone guesses, a block is driven to its fixed point by Anderson acceleration (Attractor Models).

    c = backbone(x);  y* = g(y* + c) - y* found from y = c;  answer = head(Norm y*)

The block g is pre-norm with RoPE and qk-norm, a squared ReLU, and each sub-layer scaled by a learned factor below
``SCALE_LIMIT``. Gradient takes the first two terms of the Neumann series, here by two evaluations of the map behind the
solution, whose value they leave unchanged to the solver's tolerance. The state is not carried: an iteration solves from the
guess, so it is trained and measured with one.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from looprepro.config.reasoners import RecursiveModel
from looprepro.models.blocks import MLP, RMSNorm, rope_table
from looprepro.models.fixed_point.frame import Frame
from looprepro.models.fixed_point.loop import Probe, Shapes
from looprepro.models.fixed_point.reasoner import Draw, Reasoner
from looprepro.models.fixed_point.start import start_linear
from looprepro.models.fixed_point.sublayers import Attention
from looprepro.models.initialisation import GeneratorOf
from looprepro.models.recursive.anderson import anderson

SCALE_LIMIT = 0.75
"""Largest factor that a sub-layer of the fixed-point block can reach."""
FEWEST = 4
"""Evaluations of the block before the solver may stop."""


class PreNormBlock(nn.Module):
    """y + s_1 attention(norm y), then + s_2 relu^2 MLP(norm); s = 1, or a learned sigmoid per channel below the limit."""

    def __init__(self, config: RecursiveModel, causal: bool, gated: bool) -> None:
        super().__init__()
        width = config.width
        self.norm_1, self.norm_2 = RMSNorm(width, config.norm_eps), RMSNorm(width, config.norm_eps)
        self.attention = Attention(width, config.heads, causal, qk_norm=config.norm_eps)
        self.mlp = MLP(width, round(config.expansion * width))
        self.gates = nn.Parameter(torch.empty(2, width)) if gated else None
        self.layer_scale = config.layer_scale

    def forward(self, y: Tensor, rope: Tensor | None) -> Tensor:
        factors = (1.0, 1.0) if self.gates is None else (SCALE_LIMIT * torch.sigmoid(self.gates)).unbind(0)
        y = y + factors[0] * self.attention(self.norm_1(y), rope)
        return y + factors[1] * self.mlp(self.norm_2(y))

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        """LeCun, output projections too: with zeros the map would be constant and the gates without gradient."""
        self.attention.initialise(generator, f"{name}.attention")
        start_linear(self.mlp.up, generator, f"{name}.mlp.up")
        start_linear(self.mlp.down, generator, f"{name}.mlp.down")
        if self.gates is not None:
            share = self.layer_scale / SCALE_LIMIT
            nn.init.constant_(self.gates, math.log(share / (1.0 - share)))


class Attractor(Reasoner):
    """See the module. After :meth:`iterate`, ``evaluations``: how often each row's block was evaluated, int64 ``[rows]``."""

    rope: Tensor | None
    draws_start = False

    def __init__(self, config: RecursiveModel, shapes: Shapes) -> None:
        super().__init__(Frame(config, shapes, tied=True), shapes, config.state_std)
        self.config = config
        self.backbone = nn.ModuleList(PreNormBlock(config, shapes.causal, False) for _ in range(config.backbone_layers))
        self.blocks = nn.ModuleList(PreNormBlock(config, shapes.causal, True) for _ in range(config.layers))
        self.norm = RMSNorm(config.width, config.norm_eps)
        table = None
        if config.positions == "rope":
            table = rope_table(config.prefix + shapes.time, config.width // config.heads, config.rope_base)
        self.register_buffer("rope", table, persistent=False)
        self.layers_per_iteration = config.backbone_layers + config.solver_iterations * config.layers
        self.evaluations = torch.zeros(0, dtype=torch.int64)
        self.slower = {"blocks.": config.block_lr}

    def start_loop(self, generator: GeneratorOf) -> None:
        for stage in ("backbone", "blocks"):
            for i, block in enumerate(getattr(self, stage)):
                block.initialise(generator, f"{stage}.{i}")

    def initial_state(self, drawn: Tensor) -> Tensor:
        """Zeros: the guess is the backbone's."""
        return torch.zeros_like(drawn)

    def guess(self, x: Tensor) -> Tensor:
        """c ``[rows, positions, width]``."""
        for block in self.backbone:
            x = block(x, self._rope(x))
        return x

    def attract(self, y: Tensor, c: Tensor, probe: Probe | None = None) -> Tensor:
        """The map whose fixed point is wanted, block(y + c) - y."""
        h = y + c
        for block in self.blocks:
            h = block(h, self._rope(h))
            if probe is not None:
                probe(h)
        return h - y

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        own = self.config
        c = self.guess(x)
        found = anderson(
            lambda y: self.attract(y, c.detach(), probe),
            c.detach(),
            own.memory,
            own.solver_iterations,
            own.solver_tolerance,
            min(FEWEST, own.solver_iterations),
        )
        self.evaluations = found.count
        if not torch.is_grad_enabled():
            return found.z
        return self.attract(self.attract(found.z, c), c)

    def effective_layers(self, count: Tensor) -> Tensor:
        """The backbone's, and those of the block evaluations that the latest :meth:`iterate` of these rows took."""
        return (self.config.backbone_layers + self.evaluations * len(self.blocks)).double()

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return super().decode(self.norm(z))

    def _rope(self, x: Tensor) -> Tensor | None:
        return None if self.rope is None else self.rope[: x.shape[1]]
