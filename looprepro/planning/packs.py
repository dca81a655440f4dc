"""Which cells train as one stack: those that differ only in their seed, in packs that depend on nothing else.

A cell's pack follows from its configuration and its own seed, whatever else is wanted or finished already, so that a sweep
that is run again goes on with the packs that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from looprepro.config.cell import Execution, word_parts
from looprepro.config.costs import memory_bytes
from looprepro.planning.expansion import PlannedCell

MOST = 5
"""Seeds of a pack at most: beyond that a stack gains little (docs/stacking.md), and fewer packs leave devices idle."""
MEMORY = 64e9
"""Bytes that a pack may need by config/formulas.py: what an 80 GB device leaves beside PyTorch's own."""


def pack_of(planned: PlannedCell) -> str:
    """The name of the cell's pack; empty where it trains alone.

    Alone: at an execution without packs, in a family whose cells cannot be stacked, with a user's own operator (which may
    use what torch.func.vmap lacks), and where two would not fit into memory.
    """
    cell = planned.cell
    if planned.execution.pack == "none" or cell.family != "words" or ":" in word_parts(cell)[1].injection.method:
        return ""
    size = min(MOST, int(MEMORY // (memory_bytes(cell, planned.execution) or MEMORY)))
    return f"{planned.configuration}-{cell.seed // size}" if size > 1 else ""


def packed(cells: Sequence[PlannedCell], pack: str | None) -> list[PlannedCell]:
    """``cells`` with this way of packing instead of their scale's (None: the scale's)."""
    if pack is None:
        return list(cells)
    return [replace(cell, execution=Execution.model_validate(cell.execution.model_dump() | {"pack": pack})) for cell in cells]


def packs(cells: Iterable[PlannedCell]) -> list[list[PlannedCell]]:
    """The packs among ``cells``, of two members at least, in the order of their first cells."""
    found: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        name = pack_of(cell)
        if name:
            found.setdefault(name, []).append(cell)
    return [members for members in found.values() if len(members) > 1]
