"""A store in memory: cells as plain documents, so that the tests of collect need no folder layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from looprepro.config.presence import Presence
from looprepro.store import CellRecord

BUDGETS = {"T_max/2": 8, "T_max": 16, "3T_max/2": 24}


@dataclass
class MemorySource:
    """What :class:`looprepro.analysis.source.Source` asks for, from two lists."""

    cells: dict[str, CellRecord] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    broken_requests: list[str] = field(default_factory=list)

    @staticmethod
    def configuration(method: str = "diagonal", groups: int | None = None, group: str = "A5", seed: int = 0) -> dict[str, Any]:
        """A resolved cell as JSON, with the fields that collect reads."""
        return {
            "task": {"kind": "group_words", "group": group, "length": 32, "curriculum": "doubling"},
            "model": {
                "width": 64,
                "injection": {"method": method, "chart": "pairwise" if method == "conformal" else None, "groups": groups},
                "recurrence": {"maximum": 16},
            },
            "training": {"steps": 100, "dtype": "float32"},
            "seed": seed,
        }

    def done(self, id: str, accuracies: dict[int, float], config: dict[str, Any] | None = None) -> CellRecord:
        """Add a finished cell with one accuracy per budget and a short loss curve that depends on its id."""
        self.cells[id] = CellRecord(
            id,
            config or self.configuration(),
            Presence(status="done", attempts=1),
            result={"attempt": 1, "resumed": 0, "wall_seconds": 360.0, "device_seconds": 720.0},
            provenance={"commit": "abc", "dirty": False, "versions": {"torch": "2.13.0"}, "threads": 1, "host": "h"},
            evaluations={
                f"T{budget}-e": {
                    "attempt": 1,
                    "evaluation": {"T": budget, "items": 100},
                    "metrics": {"last_token_accuracy": {"value": value, "items": 100}},
                    "series": {"position_accuracy": {"x": [1, 2], "y": [1.0, value]}},
                }
                for budget, value in accuracies.items()
            },
            metrics=[[{"step": step, "loss": 4.0 / (1 + step) + sum(map(ord, id)) * 1e-6} for step in (0, 50, 100)]],
        )
        return self.cells[id]

    def unfinished(self, id: str, status: Any, cause: str = "", config: dict[str, Any] | None = None) -> CellRecord:
        """Add a cell without a number."""
        self.cells[id] = CellRecord(id, config or self.configuration(), Presence(status=status, cause=cause, attempts=1))
        return self.cells[id]

    def ask(self, sweep: str, *cells: tuple[str, str], scale: str = "smoke", budgets: dict[str, int] | None = None) -> None:
        """Request ``cells`` (id, role of the row)."""
        wanted = [{"id": f"T{T}-e", "role": role, "T": T} for role, T in (budgets or BUDGETS).items()]
        self.asked.append(
            {
                "sweep": sweep,
                "scale": scale,
                "overrides": [],
                "cells": [
                    {"id": id, "axes": {"method": role}, "labels": {"method": role.upper()}, "evaluations": wanted}
                    for id, role in cells
                ],
            }
        )

    def requests(self, scale: str) -> list[dict[str, Any]]:
        return [request for request in self.asked if request["scale"] == scale]

    def request_problems(self, scale: str) -> list[str]:
        return self.broken_requests

    def existing(self, ids: Iterable[str]) -> set[str]:
        return set(ids) & set(self.cells)

    def records(self, ids: Iterable[str]) -> Iterator[CellRecord]:
        return (self.cells[id] for id in ids if id in self.cells)


@pytest.fixture
def source() -> MemorySource:
    """An empty store."""
    return MemorySource()


@pytest.fixture
def two_cells(source: MemorySource) -> MemorySource:
    """A diagonal and a conformal cell of table1, finished."""
    source.done("a", {8: 0.5, 16: 0.75, 24: 0.7})
    source.done("b", {8: 0.4, 16: 0.875, 24: 0.8}, source.configuration("conformal", 2))
    source.ask("table1", ("a", "diagonal"), ("b", "G=2"))
    return source
