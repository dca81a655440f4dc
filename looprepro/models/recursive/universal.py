"""URM: one state, z <- net(z + x) again and again, with a short convolution inside the SwiGLU (arXiv 2512.14693).

One iteration is one supervision step: H cycles of L calls, the last cycle with gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro.config.reasoners import RecursiveModel
from looprepro.models.fixed_point.frame import Frame
from looprepro.models.fixed_point.loop import Loop, Probe, Shapes
from looprepro.models.fixed_point.reasoner import Draw, Reasoner
from looprepro.models.fixed_point.start import truncated_normal
from looprepro.models.initialisation import GeneratorOf


class UniversalReasoner(Reasoner):
    """See the module."""

    start: Tensor
    draws_start = False

    def __init__(self, config: RecursiveModel, shapes: Shapes) -> None:
        super().__init__(Frame(config, shapes), shapes, config.state_std)
        self.config = config
        self.net = Loop(config, shapes)
        self.register_buffer("start", torch.zeros(config.width))
        self.layers_per_iteration = config.high_cycles * config.low_cycles * config.layers

    def start_loop(self, generator: GeneratorOf) -> None:
        self.net.initialise(generator, "net")
        self.start.copy_(truncated_normal(self.start.shape, self.config.state_std, generator("start")))

    def initial_state(self, drawn: Tensor) -> Tensor:
        """One vector of the model at every position (only the shape of ``drawn`` matters)."""
        return self.start.expand(drawn.shape).to(drawn.dtype)

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        with_gradient = torch.is_grad_enabled()
        for cycle in range(self.config.high_cycles):
            with torch.set_grad_enabled(with_gradient and cycle == self.config.high_cycles - 1):
                for _ in range(self.config.low_cycles):
                    z = self.net(z, x, probe)
        return z

    def monitored(self) -> dict[str, float]:
        return self.net.monitored()
