"""Before cells run: the data that they read is there, or is prepared where that needs no network, or one line says how."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from looprepro.cli.options import say

if TYPE_CHECKING:
    from looprepro.config.cell import Cell, Evaluation


def prepare_required(cells: Iterable[Cell], evaluations: Iterable[Evaluation] = ()) -> None:
    """For every cell whose task has ``data``, and for evaluations that score LAMBADA, so that no cell is trained for days to
    fail at its last line. :class:`~looprepro.files.errors.StoreError` where something has to be fetched first."""
    from looprepro.data.catalog import ensure
    from looprepro.files.errors import StoreError

    for name in dict.fromkeys(name for cell in cells if isinstance(name := getattr(cell.task, "data", None), str)):
        ensure(name, say)
    asked = (e for e in evaluations if "lambada" in getattr(e, "metrics", ()))
    for name in dict.fromkeys(str(getattr(e, "lambada", "")) for e in asked):
        if name.endswith(".jsonl"):
            if not Path(name).is_file():
                raise StoreError(f"{name} does not exist", 'Give a .jsonl file with {"text": "a passage"} per line')
        elif name != "hub":
            ensure(name, say)
