"""The language family: LanguageTrainer on the text that the cell names, over as many ranks as the execution says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from looprepro.config.cell import Cell, Evaluation, Execution, text_parts
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks.language import LanguageRows, make_language_task
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.distributed import Ranks, lead
from looprepro.training.families import Documents, Family
from looprepro.training.language import LanguageTrainer, build_model
from looprepro.training.operator_geometry import operator_series


def task_of(cell: Cell, verified: str | None = None) -> LanguageRows:
    """The cell's text. ``verified``: the content that rank 0 has checked, which this rank need not hash again."""
    return make_language_task(text_parts(cell)[0], cell.seed, verified)


def trained_model(cell: Cell, trained: Checkpoint) -> LoopedTransformer:
    """The cell's model with the weights that evaluations use, on the CPU."""
    model = build_model(cell)
    model.load_state_dict(trained.evaluated_weights, strict=True)
    return model


def _evaluate(cell: Cell, trained: Checkpoint, evaluations: Sequence[Evaluation], device: torch.device) -> Documents:
    from looprepro.training.language_evaluation import evaluate_language

    task = task_of(cell)
    task.require(trained.tensors["data"]["content"])
    return evaluate_language(trained_model(cell, trained).to(device), task, cell, evaluations, device)


def _trainer(cell: Cell, execution: Execution, device: torch.device) -> LanguageTrainer:
    task = task_of(cell)  # before any other process is started: a missing corpus is found here
    ranks = lead(execution.ranks, device)
    try:
        ranks.tell({"cell": cell.model_dump(mode="json"), "execution": execution.model_dump(mode="json")})
        ranks.tell(task.content)
        return LanguageTrainer(cell, task, execution, device, ranks)
    except BaseException:  # the others wait for a trainer that will not come, and would hold their GPUs meanwhile
        ranks.leave(failed=True)
        raise


def _follower(cell: Cell, execution: Execution, device: torch.device, ranks: Ranks) -> LanguageTrainer:
    return LanguageTrainer(cell, task_of(cell, verified=ranks.tell()), execution, device, ranks)


def _series(cell: Cell, trainer: LanguageTrainer) -> dict[str, Any]:
    return operator_series(trainer.config, build_model(cell).injection, trainer.model.injection)


FAMILY = Family(_trainer, _evaluate, _series, follower=_follower)
