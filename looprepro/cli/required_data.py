"""Before cells run: the data that they read is there, or is prepared where that needs no network, or one line says how."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from looprepro.cli.options import say


def prepare_required(cells: Iterable[Any]) -> None:
    """For every cell whose task has ``data``. :class:`~looprepro.files.errors.StoreError` where it has to be fetched first."""
    from looprepro.data.catalog import ensure

    for name in dict.fromkeys(name for cell in cells if isinstance(name := getattr(cell.task, "data", None), str)):
        ensure(name, say)
