"""What run_cell needs of a family of cells: a trainer, measurements on its weights, and what training leaves to draw."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from looprepro.config.cell import Cell, Evaluation, Execution
from looprepro.config.cell import Family as FamilyName
from looprepro.training.checkpoint import Checkpoint


class Diverged(Exception):
    """A loss or gradient is not finite: the run is over, and its number is no number."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(f"{reason} at step {step}")
        self.step, self.reason = step, reason


class MembersDiverged(Exception):
    """Some members of a stack diverged at the step that was tried; nobody's weights were touched."""

    def __init__(self, members: Mapping[int, Diverged]) -> None:
        super().__init__(", ".join(f"member {i}: {diverged}" for i, diverged in members.items()))
        self.members = dict(members)


class Report(Protocol):
    """What one optimiser step measured."""

    @property
    def step(self) -> int:
        """Updates done, this one included."""

    def record(self) -> dict[str, Any]:
        """As a line of metrics.jsonl: finite numbers only."""


class Trainer(Protocol):
    """One run: its weights, optimiser and step counter. A step depends on them and the cell alone."""

    step: int
    """Updates done."""
    seconds: float
    """Spent training, over all attempts."""
    total: int
    """Updates in all."""

    def train_step(self) -> Report:
        """One update. :class:`Diverged` where a number is not finite."""

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything a checkpoint needs, by file stem."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from ``checkpoint`` as if it had never stopped."""


class Stack(Protocol):
    """Trainers of cells that differ only in their seed, going on together."""

    step: int
    """Updates done, by every member."""

    def warm_up(self) -> None:
        """Compile what the next step needs, outside the clock."""

    def train_step(self) -> Sequence[Report]:
        """One update of every member, a report each, in their order. :class:`MembersDiverged`: some have to leave first."""

    def settle(self) -> None:
        """Put the members where the stack stands."""


Documents = dict[Evaluation, dict[str, Any]]
"""Evaluation -> what the store keeps of it: {"evaluation", "metrics", "series"}, and perhaps "submission"."""


@dataclass(frozen=True)
class Family:
    """How the cells of one family train and are measured."""

    trainer: Callable[[Cell, Execution, torch.device], Any]
    """A :class:`Trainer` at step 0."""
    evaluate: Callable[[Cell, Checkpoint, Sequence[Evaluation], torch.device], Documents]
    """Measure the trained weights."""
    series: Callable[[Cell, Any], dict[str, Any]]
    """What the finished trainer leaves to draw: name -> {"x", "y"}."""
    stack: Callable[[Sequence[Any]], Stack] | None = None
    """Trainers at one step, as a :class:`Stack`. None: cells of this family are not packed."""
    follower: Callable[[Cell, Execution, torch.device, Any], Any] | None = None
    """The trainer as a rank above 0 runs it, in families whose cells may have several ranks (``execution.ranks``)."""


_MODULES: Mapping[FamilyName, str] = {
    "words": "looprepro.training.words",
    "language": "looprepro.training.texts",
    "reasoner": "looprepro.training.reasoners",
}


def family(cell: Cell) -> Family:
    """The family of ``cell``; its module is imported when first needed."""
    found: Family = importlib.import_module(_MODULES[cell.family]).FAMILY
    return found
