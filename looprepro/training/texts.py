"""The language family: LanguageTrainer on the text that the cell names, over as many ranks as the execution says."""

from __future__ import annotations

from typing import Any

import torch

from looprepro.config.cell import Cell, Execution, text_parts
from looprepro.tasks.language import LanguageRows, make_language_task
from looprepro.training.distributed import Ranks, lead
from looprepro.training.families import Family
from looprepro.training.language import LanguageTrainer, build_model
from looprepro.training.language_evaluate import evaluate
from looprepro.training.operator_geometry import operator_series


def task_of(cell: Cell) -> LanguageRows:
    """The cell's text."""
    return make_language_task(text_parts(cell)[0], cell.seed)


def _trainer(cell: Cell, execution: Execution, device: torch.device) -> LanguageTrainer:
    task = task_of(cell)  # before any other process is started: a missing corpus is found here
    ranks = lead(execution.ranks, device)
    ranks.tell({"cell": cell.model_dump(mode="json"), "execution": execution.model_dump(mode="json")})
    return LanguageTrainer(cell, task, execution, device, ranks)


def _follower(cell: Cell, execution: Execution, device: torch.device, ranks: Ranks) -> LanguageTrainer:
    return LanguageTrainer(cell, task_of(cell), execution, device, ranks)


def _series(cell: Cell, trainer: LanguageTrainer) -> dict[str, Any]:
    return operator_series(trainer.config, build_model(cell).injection, trainer.model.injection)


FAMILY = Family(_trainer, evaluate, _series, _follower)
