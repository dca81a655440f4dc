"""What a task hands to the trainer: batches, counts, and the interface both agree on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

UNSCORED = -100
"""Target at a position that is neither trained nor scored: no class, so using it by mistake fails loudly."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some examples of one length."""

    tokens: Tensor
    """Int64 ``[rows, time]``."""
    targets: Tensor
    """Int64 ``[rows, time]``; :data:`UNSCORED` where ``scored`` is false."""
    scored: Tensor
    """Bool ``[time]``: the positions that are trained and scored, the last ones; ``[rows, time]`` where rows differ (text)."""
    rows: Tensor
    """Int64 ``[rows]``: the index of each example in its stream."""
    documents: Tensor | None = None
    """Int64 ``[rows, time]``: attention stays between positions of equal number; None: plain causal attention."""

    def to(self, device: torch.device | str) -> Batch:
        """The same examples on ``device``."""
        return replace(
            self,
            tokens=self.tokens.to(device),
            targets=self.targets.to(device),
            scored=self.scored.to(device),
            rows=self.rows.to(device),
            documents=None if self.documents is None else self.documents.to(device),
        )


@dataclass(frozen=True, eq=False)
class Count:
    """A sum and how many items it runs over: what can be added over batches without weighting mistakes."""

    total: Tensor
    """Float64 ``[...]``: one sum, or one per entry (of a stack of runs; per position)."""
    items: int
    """Terms in each of the sums."""

    def __add__(self, other: Count) -> Count:
        return Count(self.total + other.total, self.items + other.items)

    @property
    def value(self) -> Tensor:
        """The mean, float64 ``[...]``."""
        return self.total / self.items


class Task(Protocol):
    """Examples by index, a loss per row, metrics as counts. Knows no model and keeps no state between calls."""

    @property
    def vocabulary(self) -> int:
        """Number of token ids; also the width of the logits."""

    @property
    def max_time(self) -> int:
        """The most positions that a batch has."""

    def examples(self, rows: Tensor, step: int) -> Batch:
        """Training examples: each a pure function of the seed, its index in ``rows`` and, for a curriculum, ``step``."""

    def evaluation_examples(self, rows: Tensor) -> Batch:
        """Examples of a stream that training never draws."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """``[..., rows, time, vocabulary]`` to one loss per row, ``[..., rows]``."""

    def metrics(self, logits: Tensor, batch: Batch) -> dict[str, Count]:
        """Sums over rows by name; leading dimensions of ``logits`` stay."""

    def length(self, step: int) -> int:
        """Scored positions of a training example at ``step``."""

    def overlap(self, items: int) -> Count:
        """How many of the first ``items`` evaluation examples also occur among the training examples."""
