"""Cells for fake training, and a place where it notes what it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.config.cell import BudgetEvaluation, Cell, Execution, GroupWordsTask, LoopedTransformer, Training
from looprepro.config.identity import cell_id, evaluation_id
from looprepro.launch.base import Work
from looprepro.store import Store

MakeWork = Callable[..., list[Work]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "runs")


@pytest.fixture
def make_work() -> MakeWork:
    """``make_work(cells, steps=..., budgets=...)``: cells that differ in their seed."""

    def make(cells: int, steps: int = 5, budgets: tuple[int, ...] = (8,), **execution: Any) -> list[Work]:
        work = []
        for seed in range(cells):
            cell = Cell(
                task=GroupWordsTask(),
                model=LoopedTransformer(width=32, heads=4),
                training=Training(steps=steps),
                seed=seed,
            )
            evaluations = [BudgetEvaluation(T=budget) for budget in budgets]
            named = tuple((evaluation_id(e), e.model_dump(mode="json")) for e in evaluations)
            work.append(Work(cell_id(cell), cell.model_dump(mode="json"), named, Execution(**execution), steps))
        return work

    return make


@pytest.fixture
def fake(tmp_path: Path) -> dict[str, str]:
    """Environment of workers that run fake_training and note it in ``tmp_path/journal``; cell behaviour via FAKE_*."""
    return {
        "PYTHONPATH": f"{Path(__file__).parents[2]}:{Path(__file__).parent}",
        "FAKE_JOURNAL": str(tmp_path / "journal"),
    }


@pytest.fixture
def journal(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """What fake training noted so far."""

    def read() -> list[dict[str, Any]]:
        path = tmp_path / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read
