"""Words, depths and x_0 of several steps drawn together, ahead of the step that needs them.

A draw is a function of seed, stream, step and row alone, so drawing many at once changes no number; it spares the price of
starting some hundred small operators per step, which for short words is a tenth of a training step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.models.recurrence import depths, parcae_compatible_depths
from looprepro.tasks.task import Batch

if TYPE_CHECKING:
    from looprepro.training.trainer import WordTrainer

STEPS = 16
"""Steps drawn at once."""
STATE_NUMBERS = 1 << 18
"""Numbers of x_0 drawn at once, at most, where that is more than one step: 1 MB."""


class Ahead:
    """What the steps of one :class:`WordTrainer` draw. Keeps the latest block of each kind."""

    def __init__(self, trainer: WordTrainer) -> None:
        self._trainer = trainer
        self._depths: tuple[int, Tensor] | None = None
        self._batch: tuple[tuple[int, int], Batch] | None = None
        self._states: tuple[tuple[int, int, int, int], Tensor] | None = None

    def depths(self, step: int) -> Tensor:
        """Recurrence counts of the step's rows, int64 ``[batch]``, on the CPU."""
        config, rows = self._trainer.config.recurrence, self._trainer.training.batch
        if config.parcae_compat:
            return parcae_compatible_depths(config, step, rows)
        block, place = divmod(step, STEPS)
        if self._depths is None or self._depths[0] != block:
            u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, *_each(block * STEPS, STEPS, rows), 1)
            self._depths = block, depths(config, u[:, 0]).view(STEPS, rows)
        return self._depths[1][place]

    def batch(self, step: int) -> Batch:
        """The step's examples: rows step * batch and on."""
        task, rows, device = self._trainer.task, self._trainer.training.batch, self._trainer.device
        block, place = divmod(step, STEPS)
        key = block, task.length(step)
        if self._batch is None or self._batch[0] != key:
            first = block * STEPS * rows
            wanted = torch.arange(first, first + STEPS * rows, dtype=torch.int64)
            self._batch = key, task.examples(wanted.to(device), step)
        whole, part = self._batch[1], slice(place * rows, (place + 1) * rows)
        return Batch(whole.tokens[part], whole.targets[part], whole.scored, whole.rows[part])

    def states(self, step: int, rows: int, time_steps: int) -> Tensor:
        """Float32 ``[rows, time, width]``: standard normals, cut."""
        trainer = self._trainer
        count = time_steps * trainer.config.width
        together = max(1, min(STEPS, STATE_NUMBERS // (rows * count)))
        block, place = divmod(step, together)
        key = block, together, rows, count
        if self._states is None or self._states[0] != key:
            steps, places = _each(block * together, together, rows)
            drawn = randomness.truncated_normal(
                trainer.cell.seed, randomness.STATE, steps, places, count, device=trainer.device
            )
            self._states = key, drawn.view(together, rows, time_steps, trainer.config.width)
        return self._states[1][place]


def _each(first: int, steps: int, rows: int) -> tuple[Tensor, Tensor]:
    """(step, row), int64 ``[steps * rows]`` each, of all rows of some steps."""
    return torch.arange(first, first + steps).repeat_interleave(rows), torch.arange(rows).repeat(steps)
