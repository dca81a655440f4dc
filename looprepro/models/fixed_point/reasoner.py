"""The Fixed-Point Reasoner, and what the trainer expects of every reasoner.

An iteration maps a state z to f(z; x); what is damped, halted and supervised around it is the solver's and the trainer's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from looprepro import randomness
from looprepro.config.reasoners import FixedPointReasoner as FixedPointConfig
from looprepro.models.fixed_point.frame import Frame
from looprepro.models.fixed_point.loop import Loop, Probe, Shapes
from looprepro.models.fixed_point.start import CUT, truncated_std
from looprepro.models.initialisation import GeneratorOf

Draw = Callable[[int], Tensor]
"""call number within an iteration -> standard normal ``[rows, positions, width]``, for models that add noise."""


class Reasoner(nn.Module):
    """Base of all reasoners. A subclass gives :meth:`iterate`, :meth:`start_loop` and ``layers_per_iteration``."""

    layers_per_iteration: int
    """Transformer layers that one iteration applies: effective layers = iterations times this."""
    draws_start = True
    """Whether z_0 is drawn per sample (else it is a constant of the model)."""
    noisy_calls = 0
    """Draws of noise per iteration."""

    def __init__(self, frame: Frame, shapes: Shapes, state_std: float) -> None:
        super().__init__()
        self.frame, self.shapes, self.state_std = frame, shapes, state_std
        self.width, self.prefix = frame.width, frame.prefix
        self.slower: dict[str, float] = {}
        """Start of parameters' names -> part of the learning rate that they take; they are not decayed."""

    def initialise(self, seed: int) -> None:
        """Every parameter from its own generator, keyed by ``seed`` and its name."""

        def generator(name: str) -> torch.Generator:
            return randomness.parameter_generator(seed, name)

        self.frame.initialise(generator)
        self.start_loop(generator)

    def state_shape(self, time: int) -> tuple[int, ...]:
        """Of one sample's state for sequences of ``time``: ``(positions, width)``."""
        return (self.prefix + time, self.width)

    def initial_state(self, drawn: Tensor) -> Tensor:
        """z_0 from standard normals cut at :data:`CUT` deviations, ``[rows, *state_shape]``: of deviation ``state_std``."""
        return drawn * (self.state_std / truncated_std(CUT))

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        """The next state, undamped."""
        raise NotImplementedError(f"{type(self).__name__} must define iterate()")

    def start_loop(self, generator: GeneratorOf) -> None:
        """Set every parameter outside the frame."""
        raise NotImplementedError(f"{type(self).__name__} must define start_loop()")

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(logits ``[rows, time, vocabulary]``, halting logits ``[rows, 2]``)."""
        return self.frame.decode(z)

    def effective_layers(self, count: Tensor) -> Tensor:
        """Transformer layers that ``count [rows]`` iterations have applied, float64 ``[rows]``."""
        return count.double() * self.layers_per_iteration

    def monitored(self) -> dict[str, float]:
        """Numbers to watch while training, by name."""
        return {}


class FixedPointReasoner(Reasoner):
    """One loop, iterated to a fixed point: pre-norm with residual scaling unless the configuration says otherwise."""

    def __init__(self, config: FixedPointConfig, shapes: Shapes) -> None:
        super().__init__(Frame(config, shapes), shapes, config.state_std)
        self.config = config
        self.loop = Loop(config, shapes)
        self.layers_per_iteration = config.layers

    def start_loop(self, generator: GeneratorOf) -> None:
        self.loop.initialise(generator, "loop")

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        return self.loop(z, x, probe)

    def monitored(self) -> dict[str, float]:
        return self.loop.monitored()
