"""Which cells train as one stack: those that differ only in their seed, in packs that depend on nothing else.

A cell's pack follows from its configuration and its own seed, whatever else is wanted or finished already, so that a sweep
that is run again goes on with the packs that it began with.
"""

from __future__ import annotations

from looprepro.config.cell import word_parts
from looprepro.config.costs import memory_bytes
from looprepro.planning.expansion import PlannedCell

MOST = 5
"""Seeds of a pack at most: beyond that a stack gains little (docs/performance.md), and fewer packs leave devices idle."""
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
    size = min(MOST, int(MEMORY // (memory_bytes(cell) or MEMORY)))
    return f"{planned.configuration}-{cell.seed // size}" if size > 1 else ""
