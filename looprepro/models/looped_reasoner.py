"""The looped transformer of *Rotate the Loop* as a reasoner: its recurrent step is the map, the solver decides when it halts.

    f(h; tokens) = core(inject(h, e)),  e = RMSNorm(prelude(embed(tokens)));   logits = head(RMSNorm(coda(C h)))

The bridge between the two papers. The first one's start token is the one token of the prefix; value embeddings, which would
need the tokens at every step, are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from looprepro.config.models import LoopedTransformer as LoopedConfig
from looprepro.files.errors import ConfigError
from looprepro.models.fixed_point.frame import HALT_BIAS, Frame
from looprepro.models.fixed_point.loop import Probe, Shapes
from looprepro.models.fixed_point.reasoner import Draw, Reasoner
from looprepro.models.initialisation import GeneratorOf
from looprepro.models.looped_transformer import LoopedTransformer


class LoopedFrame(Frame):
    """Prelude in, coda out. The network is the reasoner's; this holds the halting head alone."""

    def __init__(self, network: LoopedTransformer, shapes: Shapes) -> None:
        torch.nn.Module.__init__(self)
        self.width, self.prefix, self.vocabulary = network.config.width, 1, shapes.vocabulary
        self.halting = torch.nn.Linear(self.width, 2)
        self.register_buffer("puzzles", None)
        self._network = [network]  # in a list, so that its parameters are not registered here a second time

    def embed(self, inputs: Tensor, puzzle: Tensor | None) -> Tensor:
        """e ``[rows, 1 + time, width]``, the start token's first."""
        return self._network[0].encode(torch.nn.functional.pad(inputs, (1, 0), value=self.vocabulary))

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(logits ``[rows, time, vocabulary]``, halting logits ``[rows, 2]`` from the start token's state)."""
        return self._network[0].decode(z)[:, 1:, : self.vocabulary], self.halting(z[:, 0])

    def initialise(self, generator: GeneratorOf) -> None:
        torch.nn.init.zeros_(self.halting.weight)
        torch.nn.init.constant_(self.halting.bias, HALT_BIAS)


class LoopedReasoner(Reasoner):
    """See the module; ``config.recurrence`` plays no part, the solver and the trainer's windows do."""

    def __init__(self, config: LoopedConfig, shapes: Shapes) -> None:
        if config.value_embeddings or not shapes.causal:
            raise ConfigError(
                "the looped transformer reasons causally and without value embeddings here",
                "Use a state-tracking task and model.value_embeddings=false",
            )
        network = LoopedTransformer(config, shapes.vocabulary + 1, shapes.time + 1)
        super().__init__(LoopedFrame(network, shapes), shapes, network.state_std())
        self.config, self.network = config, network
        self.layers_per_iteration = config.core_layers

    def initialise(self, seed: int) -> None:
        super().initialise(seed)
        self.network.initialise(seed)

    def start_loop(self, generator: GeneratorOf) -> None:
        """Nothing beside what :meth:`initialise` does."""

    def iterate(self, z: Tensor, x: Tensor, draw: Draw | None = None, probe: Probe | None = None) -> Tensor:
        return self.network.recur(z, x, probe)
