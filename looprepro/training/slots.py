"""The slots of a reasoner's batch: which sample each holds, how far it is, and when it makes room (Algorithm 2).

A slot whose sample halted takes the next unused row of the task, so what a run trains on follows from the cell and the step
alone. Everything drawn for a sample is a function of (seed, stream, row), never of its slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.reasoners import ReasonerTraining
from looprepro.models.fixed_point.reasoner import Reasoner
from looprepro.models.fixed_point.solver import Iterate, begin, select
from looprepro.models.fixed_point.start import CUT
from looprepro.tasks.puzzles.task import PuzzleBatch, PuzzleTask
from looprepro.tasks.task import UNSCORED

GAMMA_SHAPE, GAMMA_SCALE = 4, 16.67
"""Of caps drawn from a gamma distribution, in iterations: mean 66.7."""
EXPONENTIAL_SCALE = 72.13
"""Mean of caps drawn from an exponential distribution, in iterations."""


@dataclass(frozen=True, eq=False)
class Slots:
    """All of a batch, one entry per slot. ``next_row`` is the first row of the task that no slot has held."""

    batch: PuzzleBatch
    iterate: Iterate
    windows: Tensor
    """Windows done, int64 ``[slots]``."""
    caps: Tensor
    """Windows after which the sample leaves in any case, int64 ``[slots]``."""
    halted: Tensor
    """Bool ``[slots]``: to be refilled before the next window."""
    next_row: int

    def part(self, start: int, stop: int) -> Slots:
        """Slots ``start`` to ``stop`` - 1 alone; views."""
        batch = PuzzleBatch(**{field.name: getattr(self.batch, field.name)[start:stop] for field in fields(self.batch)})
        iterate = Iterate(**{name: tensor[start:stop] for name, tensor in self.iterate.tensors().items()})
        own = {name: getattr(self, name)[start:stop] for name in ("windows", "caps", "halted")}
        return replace(self, batch=batch, iterate=iterate, **own)

    def carry(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: everything but the examples, which follow from their rows."""
        own = {name: getattr(self, name) for name in ("windows", "caps", "halted")}
        return (
            {f"iterate.{name}": tensor for name, tensor in self.iterate.tensors().items()}
            | own
            | {"rows": self.batch.rows, "next_row": torch.tensor([self.next_row])}
        )


@dataclass(frozen=True, eq=False)
class Passed:
    """What a window made of slots, without its graph; their gradients have been added up by then."""

    iterate: Iterate
    """Where the window ended."""
    halting: Tensor
    """Logits of the halting head, ``[slots, 2]``."""
    right: Tensor
    """Bool ``[slots]``: every scored position is right."""
    loss: Tensor
    """Their part of the batch's mean loss, float64 scalar."""


def together(parts: Sequence[Passed]) -> Passed:
    """The parts of a batch, in the order of their slots, as one; a single part is not copied."""
    if len(parts) == 1:
        return parts[0]
    states = [part.iterate.tensors() for part in parts]
    return Passed(
        Iterate(**{name: torch.cat([state[name] for state in states]) for name in states[0]}),
        torch.cat([part.halting for part in parts]),
        torch.cat([part.right for part in parts]),
        torch.stack([part.loss for part in parts]).sum(),
    )


def initial_states(model: Reasoner, seed: int, stream: int, rows: Tensor, time: int, device: torch.device) -> Tensor:
    """z_0 of samples ``rows``, ``[rows, *state_shape]`` in the model's type, drawn by (seed, stream, row)."""
    shape = model.state_shape(time)
    dtype = next(model.parameters()).dtype
    if not model.draws_start:
        return model.initial_state(torch.zeros(len(rows), *shape, dtype=dtype, device=device))
    drawn = randomness.truncated_normal(seed, stream, 0, rows, int(torch.Size(shape).numel()), CUT, device)
    return model.initial_state(drawn.reshape(len(rows), *shape).to(dtype))


def counted_positions(batch: PuzzleBatch, causal: bool, prefix: int, states: int) -> Tensor | None:
    """Bool mask for the residual: the positions up to the last scored one, in a causal model, since no answer depends on later
    ones; None where all count. ``[rows, prefix + time]``, or ``[rows, 1, ...]`` for a model of several states."""
    if not causal:
        return None
    scored = batch.targets != UNSCORED
    before_last = scored.flip(1).cumsum(1).flip(1) > 0
    mask = torch.cat([before_last.new_ones(len(scored), prefix), before_last], dim=1)
    return mask.unsqueeze(1) if states > 1 else mask


class SlotSource:
    """Fills slots: examples, z_0, caps, each by row."""

    def __init__(self, model: Reasoner, task: PuzzleTask, training: ReasonerTraining, seed: int, device: torch.device) -> None:
        self.model, self.task, self.training, self.seed, self.device = model, task, training, seed, device

    def first(self) -> Slots:
        """Rows 0 to batch - 1."""
        return self._fill(torch.arange(self.training.batch, dtype=torch.int64), self.training.batch)

    def refilled(self, slots: Slots) -> Slots:
        """``slots`` with the next unused rows, in slot order, wherever a sample has halted."""
        places = slots.halted.nonzero().squeeze(1)
        if not len(places):
            return slots
        count = len(places)
        fresh = self._fill(torch.arange(slots.next_row, slots.next_row + count, dtype=torch.int64), slots.next_row + count)
        index = torch.zeros_like(slots.windows)
        index[places] = torch.arange(count, device=index.device)

        def merged(old: Tensor, new: Tensor) -> Tensor:
            return torch.where(slots.halted.reshape(-1, *(1,) * (old.dim() - 1)), new[index], old)

        fields = ("inputs", "targets", "puzzle_ids", "difficulty", "rows")
        batch = PuzzleBatch(**{name: merged(getattr(slots.batch, name), getattr(fresh.batch, name)) for name in fields})
        spread = Iterate(**{name: tensor[index] for name, tensor in fresh.iterate.tensors().items()})
        return Slots(
            batch,
            select(slots.halted, spread, slots.iterate),
            merged(slots.windows, fresh.windows),
            merged(slots.caps, fresh.caps),
            torch.zeros_like(slots.halted),
            fresh.next_row,
        )

    def restored(self, carry: dict[str, Tensor]) -> Slots:
        """From what :meth:`Slots.carry` gave."""
        kept = {name: tensor.to(self.device) for name, tensor in carry.items()}
        iterate = Iterate(**{name.split(".", 1)[1]: tensor for name, tensor in kept.items() if name.startswith("iterate.")})
        batch = self.task.examples(kept["rows"], 0).to(self.device)
        own = (kept["windows"], kept["caps"], kept["halted"])
        return Slots(batch, iterate, *own, next_row=int(kept["next_row"]))

    def _fill(self, rows: Tensor, next_row: int) -> Slots:
        batch = self.task.examples(rows.to(self.device), 0).to(self.device)
        z = initial_states(self.model, self.seed, randomness.STATE, rows, batch.inputs.shape[1], self.device)
        zeros = torch.zeros(len(rows), dtype=torch.int64, device=self.device)
        return Slots(batch, begin(z, self.training), zeros, self._caps(rows).to(self.device), zeros.bool(), next_row)

    def _caps(self, rows: Tensor) -> Tensor:
        """Windows: ``max_windows``, or a drawn number of iterations in whole windows, at least one."""
        own = self.training
        if own.caps == "fixed":
            return torch.full((len(rows),), own.max_windows, dtype=torch.int64)
        count, scale = (GAMMA_SHAPE, GAMMA_SCALE) if own.caps == "gamma" else (1, EXPONENTIAL_SCALE)
        u = randomness.uniform(self.seed, randomness.CAPS, 0, rows, count)
        iterations = -scale * torch.log1p(-u).sum(dim=1)  # a gamma of whole shape is a sum of exponentials
        return torch.ceil(iterations / own.window).clamp(min=1).long()


def fewest_windows(training: ReasonerTraining, seed: int, rows: Tensor, window: Tensor) -> Tensor:
    """Exploration of ACT: windows before which a sample does not leave though it wants to, int64 ``[rows]``.

    Mostly 1. Drawn anew after each ``window`` (``[rows]``, the first is 1), as in the released code of HRM and TRM.
    """
    if training.max_windows < 2:
        return torch.ones_like(rows)
    u = randomness.uniform(seed, randomness.EXPLORATION, window, rows, 2)
    drawn = 2 + (u[:, 1] * (training.max_windows - 1)).long()
    return torch.where(u[:, 0] < training.exploration, drawn, 1)


def advanced(slots: Slots, iterate: Iterate, halted: Tensor) -> Slots:
    """After one more window."""
    return replace(slots, iterate=iterate.detached(), windows=slots.windows + 1, halted=halted)
