"""TRM, HRM and EqR: a low state updated often and a high state updated rarely; one iteration is one supervision step.

    H times:  L times z_L <- net(z_L + z_H + x);  then z_H <- net(z_H + z_L)

TRM (arXiv 2510.04871) has one network and lets gradient through the last of the H cycles. HRM (arXiv 2506.21734) has a
network per state and lets gradient through the last update of each. EqR (Equilibrium Reasoners) is TRM with every call damped
and noisy, z <- (1 - eta) z + eta net(z + injected) + noise, and a fresh random start per sample.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from looprepro.config.reasoners import RecursiveModel
from looprepro.models.fixed_point.frame import Frame
from looprepro.models.fixed_point.loop import Loop, Probe, Shapes
from looprepro.models.fixed_point.reasoner import Draw, Reasoner
from looprepro.models.fixed_point.start import truncated_normal
from looprepro.models.initialisation import GeneratorOf

HIGH, LOW = 0, 1
"""Places of the two states in ``[rows, 2, positions, width]``."""


class Hierarchical(Reasoner):
    """TRM, HRM or EqR, by ``config.method``."""

    start: Tensor

    def __init__(self, config: RecursiveModel, shapes: Shapes) -> None:
        super().__init__(Frame(config, shapes), shapes, config.state_std)
        self.config = config
        names = ("high", "low") if config.method == "hrm" else ("net",)
        self.nets = nn.ModuleDict({name: Loop(config, shapes) for name in names})
        self.draws_start = config.method == "eqr"
        if not self.draws_start:
            self.register_buffer("start", torch.zeros(2, config.width))
        calls = config.high_cycles * (config.low_cycles + 1)
        self.layers_per_iteration = calls * config.layers
        self.noisy_calls = calls if config.noise else 0

    def start_loop(self, generator: GeneratorOf) -> None:
        for name, net in self.nets.items():
            net.initialise(generator, f"nets.{name}")  # type: ignore[operator]
        if not self.draws_start:
            self.start.copy_(truncated_normal(self.start.shape, self.config.state_std, generator("start")))

    def state_shape(self, time: int) -> tuple[int, ...]:
        return (2, *super().state_shape(time))

    def initial_state(self, drawn: Tensor) -> Tensor:
        """EqR: drawn; TRM and HRM: two vectors of the model at every position (only the shape of ``drawn`` matters)."""
        return super().initial_state(drawn) if self.draws_start else self.start[:, None].expand(drawn.shape).to(drawn.dtype)

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        high, low = z[:, HIGH], z[:, LOW]
        cycles, inner = self.config.high_cycles, self.config.low_cycles
        only_last_updates = self.config.method == "hrm"
        call = 0
        with_gradient = torch.is_grad_enabled()
        for cycle in range(cycles):
            last_cycle = cycle == cycles - 1
            for step in range(inner):
                loud = last_cycle and (step == inner - 1 or not only_last_updates)
                with torch.set_grad_enabled(with_gradient and loud):
                    low = self._call("low", low, high + x, draw, call, probe)
                call += 1
            with torch.set_grad_enabled(with_gradient and last_cycle):
                high = self._call("high", high, low, draw, call, probe)
            call += 1
        return torch.stack([high, low], dim=1)

    def _call(self, name: str, z: Tensor, injected: Tensor, draw: Draw | None, call: int, probe: Probe | None) -> Tensor:
        net = self.nets[name] if name in self.nets else self.nets["net"]
        moved = net(z, injected, probe)
        damping, noise = self.config.damping, self.config.noise
        if damping != 1.0:
            moved = (1.0 - damping) * z + damping * moved
        if noise:
            assert draw is not None, "a noisy model is given its noise"
            moved = moved + noise * draw(call)
        return moved

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        return super().decode(z[:, HIGH])

    def monitored(self) -> dict[str, float]:
        return next(iter(self.nets.values())).monitored()  # type: ignore[operator]
