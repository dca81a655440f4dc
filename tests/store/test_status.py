"""Status follows from files alone, never writes, and is quick."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from looprepro.store import Attempt, Store
from looprepro.store.records import Problem
from looprepro.store.results import weights_folder


def _claim(store: Store, cell: str = "cell-1") -> Attempt:
    attempt = store.claim(cell)
    assert attempt is not None
    return attempt


def _snapshot(root: Path) -> list[tuple[str, int, int]]:
    paths = sorted([root, *root.rglob("*")])
    return [(str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in paths]


@pytest.mark.parametrize(
    ("end", "cause", "status"),
    [
        ("failed", "ValueError: bad", "failed"),
        ("interrupted", "interrupted by SIGTERM", "planned"),
        ("cancelled", "by looprepro cancel", "cancelled"),
        ("done", "", "lost"),  # says done, but there is no result
    ],
)
def test_the_latest_attempt_decides_where_there_is_no_result(store: Store, end: str, cause: str, status: str) -> None:
    attempt = _claim(store)
    attempt.beat(7, 100)
    attempt.end(end, cause)  # type: ignore[arg-type]
    presence = store.presence(["cell-1"])["cell-1"]
    assert (presence.status, presence.step, presence.attempts) == (status, 7, 1)
    assert cause in presence.cause


def test_a_cell_without_folder_is_planned(store: Store) -> None:
    presence = store.presence(["never-seen"])["never-seen"]
    assert (presence.status, presence.attempts, presence.hours) == ("planned", 0, None)
    assert not store.root.exists()


def test_a_running_cell_shows_its_step(store: Store) -> None:
    attempt = _claim(store)
    attempt.beat(41, 100)
    attempt.touch()
    presence = store.presence(["cell-1"])["cell-1"]
    assert (presence.status, presence.step) == ("running", 41)


def test_reading_never_writes(store: Store, finished: Attempt) -> None:
    _claim(store, "cell-2").beat(3, 10)
    store.record_request({"sweep": "s", "scale": "smoke", "overrides": [], "cells": []})
    before = _snapshot(store.root)
    ids = [*store.ids(), "never-seen"]
    store.presence(ids)
    list(store.records(ids))
    store.requests("smoke")
    store.garbage()
    store.verify([("cell-1", {"seed": 1})])
    assert _snapshot(store.root) == before


def test_weights_of_a_cell_that_was_trained_again_are_found(store: Store, finished: Attempt) -> None:
    (weights,) = finished.path.glob("checkpoint-00000030")
    again = _claim(store)
    shutil.copytree(weights, again.path / weights.name)
    again.end("done")
    assert weights_folder(finished.cell_path, finished.result()) == weights
    shutil.rmtree(weights)
    assert weights_folder(finished.cell_path, finished.result()) == again.path / weights.name
    assert store.presence(["cell-1"])["cell-1"].has_weights
    assert again.path / weights.name not in [item.path for item in store.garbage()]
    shutil.rmtree(again.path / weights.name)
    assert not store.presence(["cell-1"])["cell-1"].has_weights


def test_a_failed_evaluation_attempt_leaves_the_cell_done_and_says_why(store: Store, finished: Attempt) -> None:
    _claim(store).end("failed", "ValueError: T16 went wrong")
    presence = store.presence(["cell-1"])["cell-1"]
    assert (presence.status, presence.cause, presence.attempts) == ("done", "ValueError: T16 went wrong", 2)


def test_the_end_of_an_attempt_does_not_bring_a_removed_cell_back(store: Store) -> None:
    attempt = _claim(store)
    shutil.rmtree(store.root / "cells" / "cell-1")
    attempt.end("superseded", "its cell was removed")
    assert attempt.ended
    assert not (store.root / "cells" / "cell-1").exists()


def test_hours_add_up_over_attempts(store: Store) -> None:
    for seconds in (3600.0, 1800.0):
        attempt = _claim(store)
        attempt.device_seconds = seconds
        attempt.end("failed", "x")
    assert store.presence(["cell-1"])["cell-1"].hours == 1.5


def test_lost_attempts_without_progress_are_counted_until_one_gets_further(store: Store) -> None:
    for step in (5, 9, 9, 4):
        attempt = _claim(store)
        attempt.beat(step, 100)
        attempt.touch()
        owner = json.loads((attempt.path / "owner.json").read_text())
        (attempt.path / "owner.json").write_text(json.dumps({**owner, "process_start": "1"}))
    reading = store.reading("cell-1")
    assert reading.fruitless() == 3  # the one that reached 9, and the two after it that got no further
    assert reading.fruitless(after=3) == 1


def test_a_record_holds_everything_and_names_what_is_broken(store: Store, finished: Attempt) -> None:
    (finished.path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste')  # cut off by a crash
    (finished.path / "series.json").write_text('{"loss": {"x": [1], "y": [2.0]}}')
    evaluations = finished.cell_path / "evaluations"
    document = json.loads((evaluations / "T8-a.json").read_text())
    document["metrics"]["accuracy"]["value"] = float("inf")
    (evaluations / "T9-b.json").write_text(json.dumps(document))
    (record,) = store.records(["cell-1", "never-seen"])
    assert record.config == {"seed": 1}
    assert list(record.evaluations) == ["T8-a"]
    assert record.metrics == [[{"step": 1}, {"step": 2}]]
    assert record.series == [{"loss": {"x": [1], "y": [2.0]}}]
    assert record.problems == [
        Problem(str(evaluations / "T9-b.json"), "it holds a value that is not finite"),
        Problem(str(finished.cell_path / "attempts" / "*" / "metrics.jsonl"), "it ends at step 2 of 30"),
    ]


def test_a_link_inside_a_cell_is_not_followed(store: Store, finished: Attempt, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_bytes((finished.cell_path / "result.json").read_bytes())
    (finished.cell_path / "result.json").unlink()
    (finished.cell_path / "result.json").symlink_to(secret)
    presence = store.presence(["cell-1"])["cell-1"]
    assert presence.status == "lost"
    assert "symbolic link" in presence.cause


def test_a_pipe_in_place_of_a_file_does_not_block(store: Store, finished: Attempt) -> None:
    (finished.cell_path / "result.json").unlink()
    os.mkfifo(finished.cell_path / "result.json")
    assert "not a regular file" in store.presence(["cell-1"])["cell-1"].cause


def test_a_thousand_cells_take_a_fifth_of_a_second(store: Store, finished: Attempt) -> None:
    # 10,000 under 2 s, measured on a tenth in CPU time, so that a busy machine does not decide.
    sources = {
        str(path.relative_to(finished.cell_path)): path.read_bytes() for path in finished.cell_path.rglob("*") if path.is_file()
    }
    evaluation = sources["evaluations/T8-a.json"]
    sources |= {"evaluations/T16-b.json": evaluation, "evaluations/T24-c.json": evaluation}
    kept = {name: data for name, data in sources.items() if "checkpoint" not in name or "00000030" in name}
    ids = [f"many-{number}" for number in range(1000)]
    for name in ids:
        for path, data in kept.items():
            target = store.layout.cell(name) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        presence = store.presence(ids)
        best = min(best, time.process_time() - start)
    assert {(p.status, len(p.evaluations), p.has_weights) for p in presence.values()} == {("done", 3, True)}
    assert best < 0.2
