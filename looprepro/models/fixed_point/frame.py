"""What stands around every reasoner's loop: token and puzzle embeddings in, an answer head and a halting head out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from looprepro.config.reasoners import LoopFields
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.start import set_truncated_normal, start_linear
from looprepro.models.initialisation import GeneratorOf

HALT_BIAS = -5.0
"""Bias of the halting head at the start: nobody halts by it before it has learned to."""


class Frame(nn.Module):
    """Embeddings and heads. The puzzle table is a buffer: a rule of its own moves the few rows a batch uses."""

    puzzles: Tensor | None

    def __init__(self, config: LoopFields, shapes: Shapes, tied: bool = False) -> None:
        super().__init__()
        self.width, self.prefix = config.width, config.prefix
        self.embedding = nn.Embedding(shapes.vocabulary, config.width)
        self.head = None if tied else nn.Linear(config.width, shapes.vocabulary, bias=False)
        self.halting = nn.Linear(config.width, 2)
        """Halting head on the first token: logits of stopping and (HRM) of going on."""
        table = torch.zeros(shapes.identifiers, config.width) if config.prefix and shapes.identifiers else None
        self.register_buffer("puzzles", table)

    def puzzle_vectors(self, identifiers: Tensor) -> Tensor | None:
        """``[rows, width]`` from int64 ``[rows]``; None where the model has no puzzle table."""
        return None if self.puzzles is None else self.puzzles[identifiers]

    def embed(self, inputs: Tensor, puzzle: Tensor | None) -> Tensor:
        """x ``[rows, prefix + time, width]`` of unit variance; the prefix is the puzzle's vector, then zeros."""
        tokens = self.embedding(inputs) * math.sqrt(self.width)
        if not self.prefix:
            return tokens
        front = tokens.new_zeros(len(inputs), self.prefix, self.width)
        if puzzle is not None:
            front = torch.cat([math.sqrt(self.width) * puzzle.to(tokens.dtype).unsqueeze(1), front[:, 1:]], dim=1)
        return torch.cat([front, tokens], dim=1)

    def decode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(logits ``[rows, time, vocabulary]``, halting logits ``[rows, 2]``) of a state ``[rows, prefix + time, width]``."""
        answer = z[:, self.prefix :]
        weight = self.embedding.weight if self.head is None else self.head.weight
        return nn.functional.linear(answer, weight), self.halting(z[:, 0])

    def initialise(self, generator: GeneratorOf) -> None:
        """LeCun throughout; the puzzle table and the halting head's weights start at zero."""
        set_truncated_normal(self.embedding.weight, self.width**-0.5, generator("embedding"))
        if self.head is not None:
            start_linear(self.head, generator, "head")
        nn.init.zeros_(self.halting.weight)
        nn.init.constant_(self.halting.bias, HALT_BIAS)
        if self.puzzles is not None:
            self.puzzles.zero_()
