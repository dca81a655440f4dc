"""What a worker is given: a manifest of cells, a JSON file.

Its keys::

    {"store": "runs", "execution": {...}, "wait": true, "tries": 3, "beat_seconds": 1.0,
     "cells": [{"id", "config", "evaluations": [{"id", "evaluation"}], "after": 0, "execution": {...}}], "packs": [["id", ...]]}

``after``: the cell's latest attempt when the command began; a failure of a later attempt is final for this command.
``execution`` of a cell goes before that of the manifest. ``packs``: cells that train as one stack. ``processes``: how
many workers, this one included, run side by side on one device. ``wait``: stay until cells that others hold are finished or
free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from looprepro.files.errors import ConfigError


@dataclass(frozen=True)
class Task:
    """One cell of the manifest."""

    id: str
    config: Mapping[str, Any]
    evaluations: tuple[tuple[str, Mapping[str, Any]], ...]
    after: int
    execution: Mapping[str, Any]


@dataclass(frozen=True)
class Manifest:
    """What to run."""

    store: Path
    tasks: tuple[Task, ...]
    wait: bool = False
    tries: int = 3
    """Attempts of one cell that may be lost in a row, without getting further in steps, before it is given up."""
    beat_seconds: float = 1.0
    runner: str | None = None
    """Tests only: ``module:function`` in place of training."""
    packs: tuple[tuple[str, ...], ...] = ()
    """Ids of cells that train as one stack; each cell in one pack at most."""
    processes: int = 1
    """Workers that run side by side on the same device: each cell is given its part of a GPU."""
    submission: Path | None = None
    """In a batch system's job: where it is written that a cell was cancelled. A cell given up is then ended as failed."""

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Manifest:
        """Parse a manifest; :class:`ConfigError` where it is wrong."""
        try:
            execution = document.get("execution", {})
            tasks = tuple(
                Task(
                    cell["id"],
                    cell["config"],
                    tuple((e["id"], e["evaluation"]) for e in cell.get("evaluations", ())),
                    int(cell.get("after", 0)),
                    cell.get("execution", execution),
                )
                for cell in document["cells"]
            )
            return Manifest(
                Path(document["store"]),
                tasks,
                bool(document.get("wait", False)),
                int(document.get("tries", 3)),
                float(document.get("beat_seconds", 1.0)),
                document.get("runner"),
                tuple(tuple(map(str, pack)) for pack in document.get("packs", ())),
                int(document.get("processes", 1)),
                Path(document["submission"]) if document.get("submission") else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"not a manifest: {type(error).__name__}: {error}") from error

    @property
    def units(self) -> list[tuple[Task, ...]]:
        """What is run together: a pack where its first cell stands, or a single cell."""
        tasks = {task.id: task for task in self.tasks}
        pack_of = {name: pack for pack in self.packs for name in pack}
        units = dict.fromkeys(pack_of.get(name, (name,)) for name in tasks)
        return [tuple(tasks[name] for name in unit if name in tasks) for unit in units]
