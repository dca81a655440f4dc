"""What a cell of any family costs, by the formulas of its family; None where they do not cover it. No torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from looprepro.config import formulas, language_formulas, reasoner_formulas
from looprepro.config.cell import Cell, Evaluation, Execution, Family, LanguageTraining

_TRAIN_FLOPS: Mapping[Family, Callable[[Cell], float]] = {
    "words": formulas.train_flops,
    "language": language_formulas.train_flops,
    "reasoner": reasoner_formulas.train_flops,
}
_EVALUATION_FLOPS: Mapping[Family, Callable[[Cell, Collection[Evaluation]], float]] = {
    "words": formulas.evaluation_flops,
    "language": language_formulas.evaluation_flops,
    "reasoner": reasoner_formulas.evaluation_flops,
}
_MEMORY_BYTES: Mapping[Family, Callable[[Cell, Execution], float]] = {
    "words": lambda cell, _: formulas.memory_bytes(cell),
    "language": lambda cell, _: language_formulas.memory_bytes(cell),
    "reasoner": reasoner_formulas.memory_bytes,
}
_PLAIN = Execution()


def total_steps(cell: Cell) -> int:
    """Optimiser steps of the whole training run."""
    return language_formulas.total_steps(cell) if isinstance(cell.training, LanguageTraining) else cell.training.steps


def train_flops(cell: Cell) -> float | None:
    """Floating-point operations of the whole training run."""
    formula = _TRAIN_FLOPS.get(cell.family)
    return None if formula is None else formula(cell)


def evaluation_flops(cell: Cell, evaluations: Collection[Evaluation]) -> float | None:
    """Floating-point operations of measuring all of ``evaluations`` on trained weights, at most."""
    formula = _EVALUATION_FLOPS.get(cell.family)
    return None if formula is None else formula(cell, evaluations)


def evaluation_steps(cell: Cell, evaluations: Collection[Evaluation]) -> float:
    """The same in optimiser steps of the cell, for progress bars; 0 where the formulas do not cover it."""
    training, measuring = train_flops(cell), evaluation_flops(cell, evaluations)
    return total_steps(cell) * measuring / training if training and measuring else 0.0


def memory_bytes(cell: Cell, execution: Execution = _PLAIN) -> float | None:
    """Bytes on one device while training: parameters, gradients, optimiser state and activations, of so many slots of a
    reasoner as ``execution`` computes at once."""
    formula = _MEMORY_BYTES.get(cell.family)
    return None if formula is None else formula(cell, execution)
