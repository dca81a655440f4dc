"""A store in a temporary folder, and finished cells in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from looprepro.store import Attempt, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "runs")


@pytest.fixture
def finished(store: Store) -> Attempt:
    """Cell ``cell-1``, done at step 30 with weights and the evaluation T8-a, its attempt ended."""
    store.register("cell-1", {"seed": 1})
    attempt = store.claim("cell-1")
    assert attempt is not None
    for step in (10, 20, 30):
        (attempt.path / f"checkpoint-{step:08d}").mkdir()
        (attempt.path / f"checkpoint-{step:08d}" / "weights").write_bytes(bytes(1000))
    attempt.publish_result({"status": "done", "step": 30, "weights": "attempts/0001/checkpoint-00000030"})
    attempt.write_evaluation(
        "T8-a", {"evaluation": {"T": 8}, "metrics": {"accuracy": {"value": 0.5, "items": 4}}, "series": {}}
    )
    attempt.end("done", step=30)
    return attempt
