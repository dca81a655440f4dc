"""A job of a batch system that runs a pack: one process, whose death or whose members' cancellation costs no number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from looprepro.config.cell import Cell, Execution, GroupWordsTask, LoopedTransformer, Recurrence, Training
from looprepro.config.identity import cell_id
from looprepro.launch.base import Work, manifest_of
from looprepro.store import Store
from looprepro.store.submissions import JobCell, Submissions

PROJECT = Path(__file__).resolve().parents[2]
Start = Callable[[list[Work]], subprocess.Popen[str]]


def three_seeds(steps: int) -> list[Work]:
    found = []
    shape = {"width": 8, "heads": 2, "prelude_layers": 1, "core_layers": 1, "coda_layers": 1}
    for seed in range(3):
        cell = Cell(
            task=GroupWordsTask(group="S3", length=4),
            model=LoopedTransformer(**shape, recurrence=Recurrence(mean=2.0, maximum=3)),  # type: ignore[arg-type]
            training=Training(steps=steps, batch=4),
            seed=seed,
        )
        execution = Execution(device="cpu", pack="seeds", checkpoint_steps=20)
        found.append(Work(cell_id(cell), cell.model_dump(mode="json"), (), execution, steps, "p"))
    return found


@pytest.fixture
def start(store: Store) -> Start:
    """A job with real training of this work."""

    def begin(work: list[Work]) -> subprocess.Popen[str]:
        submissions = Submissions(store)
        folder = submissions.folder / "one"
        document = manifest_of(store, work, {}, wait=True, requeue=False, beat_seconds=0.1, submission=str(folder))
        jobs = [[JobCell(item.id, 0) for item in work]]
        about = {"profile": "test", "poll_seconds": 1.0, "requeue": False, "source": ""}
        submissions.create("one", jobs=jobs, manifests=[document], script="", **about)  # type: ignore[arg-type]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-P", "-m", "looprepro.job", str(folder / "manifests" / "0.json")]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return begin


def wait_until(said: str, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, said
        time.sleep(0.05)


def checkpoints(store: Store, work: list[Work]) -> bool:
    return all(list(store.layout.attempts(item.id).glob("*/checkpoint-*")) for item in work)


@pytest.mark.slow
def test_a_pack_that_is_killed_and_loses_a_member_finishes_the_others(store: Store, start: Start) -> None:
    work = three_seeds(1500)
    process = start(work)
    try:
        wait_until("first checkpoints", lambda: checkpoints(store, work))
        first = store.reading(work[0].id).attempts[0]
        assert {store.reading(item.id).attempts[0].owner["pid"] for item in work} == {first.owner["pid"]}
        os.kill(first.owner["pid"], signal.SIGKILL)
        wait_until("a second attempt", lambda: all(store.reading(item.id).presence.attempts == 2 for item in work))
        wait_until("steps", lambda: store.reading(work[0].id).presence.step > 60)
        Submissions(store).cancel("one", [work[1].id])
        out, error = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, out + error
    assert "killed by SIGKILL" in error
    ends = {item.id: [attempt.status for attempt in store.reading(item.id).attempts] for item in work}
    assert ends[work[1].id] == ["lost", "interrupted"]
    assert ends[work[0].id] == ends[work[2].id] == ["lost", "interrupted", "done"]
    logs = [
        json.loads(line) for line in (store.layout.attempts(work[0].id) / "0003" / "metrics.jsonl").read_text().splitlines()
    ]
    assert logs[-1]["step"] == 1500
