"""A number that is not finite: its first step is known whenever somebody looks, and no checkpoint comes after it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from looprepro.config.cell import Cell, Execution
from looprepro.store import Attempt
from looprepro.tasks import make_task
from looprepro.training.families import Diverged
from looprepro.training.first_bad import FirstBad
from looprepro.training.run import run_cell
from looprepro.training.trainer import WordTrainer

MakeCell = Callable[..., Cell]
Begin = Callable[[Cell], Attempt]
CPU = torch.device("cpu")


def execution(**settings: object) -> Execution:
    return Execution(threads=1, device="cpu", **settings)  # type: ignore[arg-type]


def test_the_first_bad_step_is_remembered_with_its_numbers() -> None:
    flag = FirstBad(CPU)
    for step, loss, norm in [(1, 2.0, 1.0), (2, 3.0, math.inf), (3, math.nan, math.nan), (4, 1.0, 1.0)]:
        flag.note(step, torch.tensor(loss), torch.tensor(norm))
    with pytest.raises(Diverged, match="gradient norm is inf at step 2"):
        flag.check()


def test_good_steps_raise_no_flag() -> None:
    flag = FirstBad(CPU)
    flag.note(1, torch.tensor(1e30), torch.tensor(0.0))
    flag.check()


def poisoned_from(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Every trainer's gradients are NaN from the update that follows ``step`` updates."""
    plain = WordTrainer.sample_depths

    def sample(self: WordTrainer, now: int) -> torch.Tensor:
        if now == step:
            next(iter(self.parameters.values())).register_hook(lambda gradient: gradient * math.nan)
        return plain(self, now)

    monkeypatch.setattr(WordTrainer, "sample_depths", sample)


@pytest.mark.parametrize("every", [1, 2, 5, 100])
def test_however_rarely_it_is_read_back_the_step_reported_is_the_first_bad_one(
    make_cell: MakeCell, begin: Begin, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    poisoned_from(monkeypatch, 6)
    cell = make_cell()
    attempt = begin(cell)
    settings = execution(read_back_every=every, log_every=100, checkpoint_steps=3)
    outcome = run_cell(cell, [], settings, attempt, lambda: None)
    assert (outcome.status, outcome.step, outcome.reason) == ("diverged", 7, "gradient norm is nan")
    kept = sorted(int(folder.name.split("-")[1]) for folder in attempt.checkpoint_folders())
    assert kept == [3, 6]  # the checkpoint due at 9 was not written
    result = attempt.result()
    assert result is not None
    assert (result["status"], result["step"]) == ("diverged", 7)


def test_a_signal_after_a_bad_step_saves_no_weights(make_cell: MakeCell, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    poisoned_from(monkeypatch, 4)
    cell = make_cell()
    attempt, asked = begin(cell), []

    def stop() -> str | None:
        asked.append(1)
        return "SIGTERM" if len(asked) > 8 else None

    outcome = run_cell(cell, [], execution(read_back_every=100, log_every=100), attempt, stop)
    assert (outcome.status, outcome.step) == ("diverged", 5)
    assert not list(attempt.checkpoint_folders())


def test_reading_back_less_often_changes_no_number(make_cell: MakeCell) -> None:
    cell = make_cell()
    losses = []
    for every in (1, 4):
        task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
        trainer = WordTrainer(cell, task, execution(read_back_every=every), CPU)
        losses.append([trainer.train_step().record()["loss"] for _ in range(8)])
    assert losses[0] == losses[1]
