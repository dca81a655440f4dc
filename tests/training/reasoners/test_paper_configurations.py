"""Every reasoner of the paper's scale is built, takes a real window and is measured, long before a GPU sees it.

Everything is as planned except what would not fit a test: a batch of two, few generated puzzles where the real ones come from a
network, few images of the ARC tasks, and two iterations at most when measuring.
"""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.config.cell import Cell, Evaluation, Execution, ReasonerEvaluation
from looprepro.config.reasoner_formulas import parameters
from looprepro.planning import PlannedCell, available_sweeps, expand, load_sweep, merge
from looprepro.training import reasoner_evaluation
from looprepro.training.reasoner import ReasonerTrainer
from looprepro.training.reasoner_evaluation import evaluate_reasoner
from looprepro.training.reasoners import task_of


def paper_cells() -> dict[str, PlannedCell]:
    """One cell per distinct configuration of the paper's scale, over all sweeps of reasoners."""
    sweeps = [sweep for sweep in map(load_sweep, available_sweeps()) if "paper" in sweep.scales]
    cells = merge([expand(sweep, "paper", seeds="0") for sweep in sweeps])
    return {planned.configuration: planned for planned in cells if planned.cell.family == "reasoner"}


def with_few_puzzles(cell: Cell) -> Cell:
    few = {
        "sudoku": {"data": None, "train_items": 4, "augmentations": 2},
        "maze": {"data": None, "train_items": 4},
        "arc": {"augmentations": 2},
        "state_tracking": {},
    }[cell.task.kind]
    document = cell.model_dump(mode="json")
    document["task"] |= few
    document["training"] |= {"batch": 2}
    return Cell.model_validate(document)


def at_most_two_iterations(evaluation: Evaluation) -> Evaluation:
    assert isinstance(evaluation, ReasonerEvaluation)
    return ReasonerEvaluation.model_validate(evaluation.model_dump() | {"T": min(evaluation.T, 2), "items": 2})


@pytest.mark.slow
@pytest.mark.parametrize("planned", paper_cells().values(), ids=lambda planned: planned.id)
def test_a_paper_configuration_has_the_planned_parameters_takes_a_window_and_is_measured(
    planned: PlannedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(reasoner_evaluation.BLOCKS, "cpu", 2)
    cell, cpu = with_few_puzzles(planned.cell), torch.device("cpu")
    task = task_of(cell)
    trainer = ReasonerTrainer(cell, task, Execution(threads=1, device="cpu"), cpu)
    if cell.model.kind != "looped_transformer":
        trained = sum(p.numel() for name, p in trainer.model.named_parameters() if name != "frame.puzzles")
        assert trained == parameters(cell.model, task.vocabulary, max(task.time, task.evaluation_time))
    report = trainer.train_step().record()
    assert 0.0 < report["loss"] < 3 * math.log(task.vocabulary)
    assert report["grad_norm"] > 0.0
    documents = evaluate_reasoner(trainer.model, task, cell, [at_most_two_iterations(planned.evaluations[0].evaluation)], cpu)
    (document,) = documents.values()
    assert 0.0 <= document["metrics"]["exact_accuracy"]["value"] <= 1.0
