"""A cell that trains in a fraction of a second, and attempts at it in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from looprepro.config.cell import Cell, Execution, GroupWordsTask, Injection, LoopedTransformer, Recurrence, Training
from looprepro.config.identity import cell_id
from looprepro.store import Attempt, Store

MakeCell = Callable[..., Cell]
Begin = Callable[[Cell], Attempt]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a worker; and the determinism that training switches on is put back."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture
def make_cell() -> MakeCell:
    """``make_cell(seed=, injection=, **training)``."""

    def make(seed: int = 3, injection: Injection | None = None, **training: Any) -> Cell:
        return Cell(
            task=GroupWordsTask(group="S3", length=4),
            model=LoopedTransformer(
                width=8,
                heads=2,
                prelude_layers=1,
                core_layers=1,
                coda_layers=1,
                injection=injection or Injection(),
                recurrence=Recurrence(mean=2.0, maximum=3),
            ),
            training=Training(**({"steps": 12, "batch": 4, "warmup": 2, "lr": 1e-2} | training)),
            seed=seed,
        )

    return make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "runs")


@pytest.fixture
def begin(store: Store) -> Begin:
    """A new attempt at a cell, as a worker makes it."""

    def claim(cell: Cell) -> Attempt:
        store.register(cell_id(cell), cell.model_dump(mode="json"))
        attempt = store.claim(cell_id(cell))
        assert attempt is not None
        return attempt

    return claim


@pytest.fixture
def execution() -> Execution:
    """On one thread of the CPU, every step logged."""
    return Execution(threads=1, device="cpu", log_every=1)
