"""What a plan's language models need of a machine, by size: GPUs, memory of each, hours. Arithmetic of config/ only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from looprepro.config.cell import LanguageTraining, LoopedTransformer
from looprepro.config.costs import memory_bytes
from looprepro.config.language_formulas import model_parameters, tokens_per_parameter, total_steps
from looprepro.planning.plan import Item


@dataclass(frozen=True, slots=True)
class Size:
    """Cells that differ in their injection, their seed or the reach of their gradient only."""

    parameters: int
    """Of the largest of them."""
    width: int
    steps: int
    tokens_per_parameter: float
    ranks: int
    """Processes, and GPUs, of one cell."""
    memory_bytes: float
    """Of each process, at most."""
    hours: float | None
    """Of what one cell still needs, at most: device hours over ranks; None where nothing is known, or nothing runs."""
    cells: int


def sizes(items: Iterable[Item]) -> list[Size]:
    """The sizes of the language models among ``items``, in their order."""
    found: dict[tuple[object, ...], list[Item]] = {}
    for item in items:
        cell, execution = item.cell.cell, item.cell.execution
        if isinstance(cell.training, LanguageTraining) and isinstance(cell.model, LoopedTransformer):
            shape = cell.model.model_dump(exclude={"injection", "recurrence"})
            found.setdefault((repr(shape), cell.training, execution.ranks), []).append(item)
    return [_size(group) for group in found.values()]


def _size(group: list[Item]) -> Size:
    largest = max(group, key=lambda item: model_parameters(item.cell.cell)).cell
    ranks = largest.execution.ranks
    hours = [item.hours for item in group if item.hours]
    return Size(
        model_parameters(largest.cell),
        largest.cell.model.width,
        total_steps(largest.cell),
        tokens_per_parameter(largest.cell),
        ranks,
        max(memory_bytes(item.cell.cell, item.cell.execution) or 0.0 for item in group),
        max(hours) / ranks if hours else None,
        len(group),
    )
