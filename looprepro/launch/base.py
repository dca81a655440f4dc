"""One interface for where cells run: work in, progress out.

An executor takes what a plan says is missing and yields :class:`Progress` until nothing is left to wait for. All of
them go through the same claims of the store, so any two may run at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from looprepro.config.cell import Execution
from looprepro.config.costs import evaluation_steps, total_steps
from looprepro.config.presence import Presence
from looprepro.planning.expansion import PlannedCell
from looprepro.planning.packs import pack_of
from looprepro.store import Store

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TORCHINDUCTOR_COMPILE_THREADS",
)
"""Read by libraries when they load, so they must be set before Python starts."""


@dataclass(frozen=True)
class Work:
    """One cell to run, with the evaluations wanted of it."""

    id: str
    config: Mapping[str, Any]
    evaluations: tuple[tuple[str, Mapping[str, Any]], ...]
    """(evaluation id, evaluation as JSON); those that are there already are skipped."""
    execution: Execution = field(default_factory=Execution)
    steps: int = 0
    """Optimiser steps in all, for a progress bar."""
    pack: str = ""
    """Cells of equal ``pack`` train as one stack; without one, alone."""
    measuring: float = 0.0
    """What the evaluations cost at most, in optimiser steps: for the same bar."""


@dataclass(frozen=True)
class Progress:
    """How it stands. ``finished`` is true in the last one only."""

    presence: Mapping[str, Presence]
    """Every cell of the work, in its order. A failure of an earlier command shows as ``planned`` until its retry begins."""
    complete: frozenset[str]
    """Cells with nothing missing: diverged, or done with all evaluations wanted."""
    messages: tuple[str, ...] = ()
    """New since the last one, a line each: a worker died, a limit was lowered."""
    finished: bool = False
    exit_code: int = 0
    """0 everything is complete, 1 something is missing, 2 a configuration collides, 130 interrupted. Valid once finished."""


class Executor(Protocol):
    """Where cells run."""

    def run(self, store: Store, work: Sequence[Work]) -> Iterator[Progress]:
        """Run what is missing of ``work``. Errors before anything runs raise (collision, folder not writable)."""


def work_of(cells: Iterable[PlannedCell]) -> list[Work]:
    """Planned cells as work."""
    return [
        Work(
            planned.id,
            planned.cell.model_dump(mode="json"),
            tuple((e.id, e.evaluation.model_dump(mode="json")) for e in planned.evaluations),
            planned.execution,
            total_steps(planned.cell),
            pack_of(planned),
            evaluation_steps(planned.cell, [e.evaluation for e in planned.evaluations]),
        )
        for planned in cells
    ]


def units_of(work: Iterable[Work]) -> list[list[Work]]:
    """What runs together in one process: packs, and single cells; in the order of their first cells."""
    units: dict[tuple[str, str], list[Work]] = {}
    for item in work:
        units.setdefault((item.pack, "" if item.pack else item.id), []).append(item)
    return list(units.values())


def manifest_of(store: Store, work: Sequence[Work], after: Mapping[str, int], **settings: Any) -> dict[str, Any]:
    """The document that a worker runs (:mod:`looprepro.worker_manifest`). ``settings``: wait, tries, processes and so on."""
    execution = work[0].execution.model_dump(mode="json") if work else {}
    cells = []
    for item in work:
        cell = {
            "id": item.id,
            "config": item.config,
            "evaluations": [{"id": name, "evaluation": evaluation} for name, evaluation in item.evaluations],
            "after": after.get(item.id, 0),
        }
        own = item.execution.model_dump(mode="json")
        if own != execution:
            cell["execution"] = own
        cells.append(cell)
    packs = [[item.id for item in unit] for unit in units_of(work) if len(unit) > 1]
    found = {"store": str(store.root), "execution": execution, "cells": cells, **settings}
    return found | ({"packs": packs} if packs else {})


def thread_environment(threads: int) -> dict[str, str]:
    """Environment that holds a process to ``threads`` CPU threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def available_cores() -> int:
    """Cores that this process may use (a container or batch system may give fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Watch:
    """Reads the progress of work from the store; cells that are complete are not read again."""

    def __init__(self, store: Store, work: Sequence[Work]) -> None:
        self.store = store
        self.after = store.highest_attempts(item.id for item in work)
        self._work = {item.id: item for item in work}
        self._presence: dict[str, Presence] = {}
        self._complete: set[str] = set()

    def look(self) -> Progress:
        """The present state; ``messages``, ``finished`` and ``exit_code`` are the caller's to fill in."""
        for reading in self.store.readings([name for name in self._work if name not in self._complete]):
            presence, highest = reading.presence, reading.highest
            if presence.complete(name for name, _ in self._work[reading.id].evaluations):
                self._complete.add(reading.id)
            elif presence.status in ("failed", "lost", "cancelled") and highest and highest.number <= self.after[reading.id]:
                presence = replace(presence, status="planned")
            self._presence[reading.id] = presence
        ordered = {name: self._presence[name] for name in self._work}
        return Progress(ordered, frozenset(self._complete))

    def traces_of(self, pid: int) -> tuple[str | None, bool]:
        """(cell that process ``pid`` of this machine held when it died, whether it has held any cell in this command).

        Reads everything: another worker may have taken the cell over and even finished it meanwhile.
        """
        held, any_cell = None, False
        for reading in self.store.readings(self._work):
            for attempt in reading.attempts:
                if attempt.number > self.after[reading.id] and attempt.owner.get("pid") == pid:
                    any_cell = True
                    held = reading.id if attempt.end is None else held
        return held, any_cell
