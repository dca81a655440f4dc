"""The reasoner family: ReasonerTrainer and measurements with the task that the cell names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from looprepro.config.cell import Cell, Evaluation, Execution
from looprepro.config.puzzles import ArcTask, MazeTask, StateTrackingTask, SudokuTask
from looprepro.models.fixed_point.loop import Loop
from looprepro.tasks.puzzles import make_puzzle_task
from looprepro.tasks.puzzles.task import PuzzleTask
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.families import Documents, Family
from looprepro.training.reasoner import ReasonerTrainer, build_reasoner, load_reasoner
from looprepro.training.reasoner_evaluation import evaluate_reasoner


def task_of(cell: Cell) -> PuzzleTask:
    """The cell's task."""
    config = cell.task
    if not isinstance(config, StateTrackingTask | SudokuTask | MazeTask | ArcTask):
        raise TypeError(f"{type(config).__name__} where the family has a puzzle")
    return make_puzzle_task(config, cell.seed)


def _trainer(cell: Cell, execution: Execution, device: torch.device) -> ReasonerTrainer:
    return ReasonerTrainer(cell, task_of(cell), execution, device)


def _evaluate(cell: Cell, trained: Checkpoint, evaluations: Sequence[Evaluation], device: torch.device) -> Documents:
    task = task_of(cell)
    model = build_reasoner(cell, task)
    load_reasoner(model, trained.evaluated_weights)
    return evaluate_reasoner(model.to(device), task, cell, evaluations, device)


def _series(cell: Cell, trainer: ReasonerTrainer) -> dict[str, Any]:
    """``alpha_1`` and ``alpha_2``: y the trained values of all channels in ascending order, x their rank (section 4.4.3)."""
    series: dict[str, Any] = {}
    for module in trainer.model.modules():
        if not isinstance(module, Loop):
            continue
        for number in (1, 2):
            vector = getattr(module.scaling, f"alpha_{number}", None)
            if vector is not None:
                values = torch.sigmoid(vector.detach().double().cpu()).sort().values.tolist()
                series.setdefault(f"alpha_{number}@channels", {"x": [float(i) for i in range(len(values))], "y": values})
    return series


FAMILY = Family(_trainer, _evaluate, _series)
