"""The group-word family: WordTrainer and evaluate with the task that the cell names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from looprepro.config.cell import Cell, Evaluation, Execution, word_parts
from looprepro.models import kernels
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks import GroupWords, make_task
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.evaluate import evaluate
from looprepro.training.families import Documents, Family
from looprepro.training.operator_geometry import operator_series
from looprepro.training.stack import StackedTrainer
from looprepro.training.trainer import WordTrainer, build_model, load_weights


def task_of(cell: Cell) -> GroupWords:
    """The cell's task."""
    config, _, training = word_parts(cell)
    return make_task(config, cell.seed, training.steps, training.batch)


def trained_model(cell: Cell, trained: Checkpoint) -> LoopedTransformer:
    """The cell's model with the weights that evaluations use, on the CPU."""
    model = build_model(cell, task_of(cell))
    load_weights(model, trained.evaluated_weights)
    return model


def _trainer(cell: Cell, execution: Execution, device: torch.device) -> WordTrainer:
    return WordTrainer(cell, task_of(cell), execution, device)


def _evaluate(cell: Cell, trained: Checkpoint, evaluations: Sequence[Evaluation], device: torch.device) -> Documents:
    model = trained_model(cell, trained).to(device)
    kernels.use(model, kernels.preferred())
    return evaluate(model, task_of(cell), cell, evaluations, device)


def _series(cell: Cell, trainer: WordTrainer) -> dict[str, Any]:
    initial = build_model(cell, trainer.task).injection
    return operator_series(trainer.config, initial, trainer.model.injection)


FAMILY = Family(_trainer, _evaluate, _series, StackedTrainer)
