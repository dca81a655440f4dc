"""Numbers of an evaluation belong to the weights and the budget, not to what was measured beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from looprepro.config.cell import BudgetEvaluation, Cell, Evaluation
from looprepro.tasks import make_task
from looprepro.training import evaluate as module
from looprepro.training.evaluate import evaluate as timed_evaluate
from looprepro.training.trainer import build_model

CPU = torch.device("cpu")
MakeCell = Callable[..., Cell]


def evaluate(*about: Any) -> dict[Evaluation, dict[str, Any]]:
    """Without the time that measuring took."""
    documents = timed_evaluate(*about)
    assert all(0.0 < document.pop("geometry_seconds") < 60.0 for document in documents.values())
    return documents


def test_a_number_does_not_depend_on_the_other_budgets(make_cell: MakeCell) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    model = build_model(cell, task)
    budgets = [BudgetEvaluation(T=budget, items=20) for budget in (1, 2, 5)]
    together = evaluate(model, task, cell, budgets, CPU)
    for evaluation in budgets:
        assert evaluate(model, task, cell, [evaluation], CPU) == {evaluation: together[evaluation]}
    assert evaluate(model, task, cell, budgets[::-1], CPU) == together
    assert len({together[e]["metrics"]["loss"]["value"] for e in budgets}) == 3


def test_other_item_counts_measured_beside_it_change_nothing(make_cell: MakeCell) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    model = build_model(cell, task)
    few, many = BudgetEvaluation(T=2, items=8), BudgetEvaluation(T=2, items=24)
    together = evaluate(model, task, cell, [few, many], CPU)
    assert together[few] == evaluate(model, task, cell, [few], CPU)[few]
    assert together[few]["metrics"]["loss"]["items"] == 8
    assert together[many]["metrics"]["mean_token_accuracy"]["items"] == 24 * 4


def test_counts_add_up_over_blocks(make_cell: MakeCell, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    model = build_model(cell, task)
    evaluation = BudgetEvaluation(T=2, items=21)
    whole = evaluate(model, task, cell, [evaluation], CPU)[evaluation]
    monkeypatch.setattr(module, "BLOCK", 8)  # 8 + 8 + 5
    blocks = evaluate(model, task, cell, [evaluation], CPU)[evaluation]
    for name, measured in whole["metrics"].items():
        assert blocks["metrics"][name]["items"] == measured["items"]
        assert blocks["metrics"][name]["value"] == pytest.approx(measured["value"], rel=1e-5)
    series = "position_accuracy@T=2"
    assert blocks["series"][series]["x"] == [1.0, 2.0, 3.0, 4.0]
    assert blocks["series"][series]["y"] == pytest.approx(whole["series"][series]["y"])
    assert whole["series"][series]["y"][-1] == whole["metrics"]["last_token_accuracy"]["value"]


def test_measuring_leaves_weights_and_global_random_state_alone(make_cell: MakeCell) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    model = build_model(cell, task)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    evaluate(model, task, cell, [BudgetEvaluation(T=3, items=8)], CPU)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
