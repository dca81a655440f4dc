"""The training steps that the benchmarks time, and how many of their operations are useful."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from looprepro.config import formulas
from looprepro.config.cell import Cell, Execution, GroupWordsTask, Injection, LoopedTransformer, Recurrence, Training
from looprepro.config.curriculum import Curriculum
from looprepro.tasks import make_task
from looprepro.training.trainer import WordTrainer

STEPS = 3000
"""Of the run that a case stands for; a step of word length L is taken from L's slice of the curriculum."""


@dataclass(frozen=True)
class Case:
    """A model and a batch, at one or more word lengths."""

    name: str
    width: int
    heads: int
    layers: int
    """In each of prelude, core and coda."""
    lengths: tuple[int, ...]
    maximum: int
    mean: float
    rows: int = 64
    longest: int = 32

    def cell(self, dtype: str = "float32") -> Cell:
        """A5, conformal with four groups and the pairwise chart: the group-word study's setting at this size."""
        return Cell(
            task=GroupWordsTask(group="A5", length=self.longest, alphabet="generators"),
            model=LoopedTransformer(
                width=self.width,
                heads=self.heads,
                prelude_layers=self.layers,
                core_layers=self.layers,
                coda_layers=self.layers,
                injection=Injection(method="conformal", groups=4),
                recurrence=Recurrence(scheme="poisson-conditioned", mean=self.mean, maximum=self.maximum),
            ),
            training=Training(lr=1e-3, steps=STEPS, batch=self.rows, warmup=100, dtype=dtype),
            seed=0,
        )


CASES = {
    case.name: case
    for case in (
        # The group words of scale mini as they were when the targets were set; the scale has 20 letters and T_max = 8 today.
        Case("mini", 64, 4, 1, (32,), 16, 12.0),
        Case("mini-curriculum", 64, 4, 1, (2, 4, 8, 16, 32), 16, 12.0),
        Case("width-128", 128, 4, 2, (32,), 16, 12.0),
        Case("width-512", 512, 8, 2, (32,), 24, 12.0),
        Case("tiny", 16, 2, 1, (4,), 4, 3.0, rows=8, longest=4),
    )
}
"""Width 512: Poisson(12) conditioned on 1..24 has mean 12.0. ``tiny`` is for tests."""


def trainer(cell: Cell, execution: Execution, device: str = "cpu") -> WordTrainer:
    """At step 0, on the real code."""
    task = make_task(cell.task, cell.seed, cell.training.steps, cell.training.batch)
    return WordTrainer(cell, task, execution, torch.device(device))


def first_step(cell: Cell, length: int) -> int:
    """The first step whose words have ``length`` letters."""
    lengths = Curriculum.of(cell.task.curriculum, cell.task.length, cell.training.steps).lengths
    return -(-lengths.index(length) * cell.training.steps // len(lengths))


def useful_flops(cell: Cell, length: int, depths: list[int]) -> float:
    """Of one training step: matrix products, attention's causal half and the operator on rows still active; backward twice
    forward (config/formulas.py)."""
    time = formulas.positions(cell.task, length)
    loop = sum(depths) * formulas.step_flops(cell.model, time)
    outside = len(depths) * formulas.outside_flops(cell.model, formulas.vocabulary(cell.task), time)
    return 3.0 * (loop + outside + formulas.factor_flops(cell.model.injection, cell.model.width))
