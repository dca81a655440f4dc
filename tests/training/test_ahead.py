"""What is drawn for several steps at once is what each step would draw alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from looprepro import randomness
from looprepro.config.cell import Cell, Execution
from looprepro.models.recurrence import depths
from looprepro.tasks import make_task
from looprepro.training import ahead
from looprepro.training.stack import StackedTrainer
from looprepro.training.trainer import WordTrainer

MakeCell = Callable[..., Cell]


@pytest.mark.parametrize("numbers", [ahead.STATE_NUMBERS, 300, 1])
def test_draws_of_a_step_do_not_depend_on_what_is_drawn_beside_them(
    make_cell: MakeCell, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    monkeypatch.setattr(ahead, "STATE_NUMBERS", numbers)
    cell = make_cell(steps=40)
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    trainer = WordTrainer(cell, task, Execution(threads=1, device="cpu"), torch.device("cpu"))
    rows = torch.arange(4)
    for step in (0, 1, 15, 16, 19, 20, 39, 3):  # across blocks, across the curriculum's change of length, and back
        batch, alone = trainer._ahead.batch(step), task.examples(rows + 4 * step, step)
        assert trainer.batch_shape(step) == batch.tokens.shape
        assert torch.equal(batch.tokens, alone.tokens)
        assert torch.equal(batch.targets, alone.targets)
        assert torch.equal(batch.rows, alone.rows)
        u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, step, rows, 1)
        assert torch.equal(trainer.sample_depths(step), depths(cell.model.recurrence, u[:, 0]))
        time = batch.tokens.shape[1]
        drawn = randomness.truncated_normal(cell.seed, randomness.STATE, step, rows, time * 8).view(4, time, 8)
        assert torch.equal(trainer.initial_state(step, 4, time), drawn * trainer.model.state_std())


@pytest.mark.parametrize("stack", [False, True])
def test_a_warm_up_draws_nothing_which_would_then_be_outside_the_clock(make_cell: MakeCell, stack: bool) -> None:
    cell = make_cell()
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    trainer = WordTrainer(cell, task, Execution(threads=1, device="cpu"), torch.device("cpu"))
    (StackedTrainer([trainer]) if stack else trainer).warm_up()
    assert trainer._ahead._batch is None
