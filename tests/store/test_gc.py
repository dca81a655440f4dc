"""gc offers what nobody needs, and frees only what it offered."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from looprepro.store import Attempt, Store


def _names(store: Store) -> list[str]:
    return sorted(item.path.name for item in store.garbage())


def test_of_a_finished_cell_everything_but_the_weights_can_go(store: Store, finished: Attempt) -> None:
    garbage = store.garbage()
    assert _names(store) == ["checkpoint-00000010", "checkpoint-00000020"]
    assert [item.bytes for item in garbage] == [1000, 1000]
    assert store.free(garbage) == 2000
    assert sorted(name for name in os.listdir(finished.path) if "checkpoint" in name) == ["checkpoint-00000030"]
    assert store.presence(["cell-1"])["cell-1"].has_weights
    assert store.garbage() == []


def test_of_an_unfinished_cell_the_newest_two_stay(store: Store) -> None:
    for steps in ((10, 20), (30,)):
        attempt = store.claim("cell-1")
        assert attempt is not None
        for step in steps:
            (attempt.path / f"checkpoint-{step:08d}").mkdir()
        attempt.end("interrupted", step=steps[-1])
    assert _names(store) == ["checkpoint-00000010"]


def test_a_held_cell_is_left_alone_even_if_taken_after_the_look(store: Store, finished: Attempt) -> None:
    garbage = store.garbage()
    assert store.claim("cell-1") is not None
    assert store.garbage() == []
    assert store.free(garbage) == 0
    assert (finished.path / "checkpoint-00000010").is_dir()


def test_a_lost_weights_folder_keeps_the_other_checkpoints(store: Store, finished: Attempt) -> None:
    weights = finished.path / "checkpoint-00000030"
    (weights / "weights").unlink()
    weights.rmdir()
    assert store.garbage() == []


def test_only_old_temporary_files_are_left_over(store: Store, finished: Attempt) -> None:
    store.free(store.garbage())
    young, old = finished.path / ".metrics.ab.tmp", finished.path / ".series.cd.tmp"
    for path in (young, old):
        path.write_text("x")
    os.utime(old, (time.time() - 7200,) * 2)
    assert _names(store) == [".series.cd.tmp"]


@pytest.mark.parametrize(
    "folder",
    [
        ".",
        "submissions",
        "submissions/one",
        "sources",
        "requests",
        "requests/smoke",
        "cells",
        "cells/cell-1",
        "cells/cell-1/queue",
    ],
)
def test_what_killed_commands_left_is_offered_wherever_they_write(store: Store, finished: Attempt, folder: str) -> None:
    store.free(store.garbage())
    (store.root / folder).mkdir(parents=True, exist_ok=True)
    young, old = store.root / folder / ".one.ab.tmp", store.root / folder / ".two.cd.tmp"
    for path in (young, old):
        path.mkdir()
        (path / "content").write_text("x")
    os.utime(old, (time.time() - 7200,) * 2)
    assert [item.path for item in store.garbage()] == [old]
    assert store.free(store.garbage()) == 1
    assert young.is_dir()
    assert not old.exists()


def test_leftovers_in_a_runs_folder_that_is_a_link_are_offered(store: Store, finished: Attempt, tmp_path: Path) -> None:
    store.free(store.garbage())
    linked = Store(tmp_path / "linked")
    linked.root.symlink_to(store.root)
    left = linked.root / ".store.json.ab.tmp"
    left.write_text("x")
    os.utime(left, (time.time() - 7200,) * 2)
    assert linked.free(linked.garbage()) == 1
    assert not left.exists()


def test_links_are_neither_offered_nor_followed(store: Store, finished: Attempt, tmp_path: Path) -> None:
    store.free(store.garbage())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (finished.path / "checkpoint-00000005").symlink_to(outside)
    folder = finished.path / "checkpoint-00000006"
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    assert _names(store) == ["checkpoint-00000006"]
    store.free(store.garbage())
    assert (outside / "precious").read_text() == "x"
    assert not folder.exists()


def test_logs_of_commands_go_after_a_month(store: Store) -> None:
    recent, old = store.new_launch(), store.new_launch()
    for folder, days in ((recent, 20), (old, 40)):
        (folder / "manifest.json").write_text("{}")
        for path in (folder / "manifest.json", folder):
            os.utime(path, (time.time() - days * 86400,) * 2)
    assert [item.path for item in store.garbage()] == [old]
    store.free(store.garbage())
    assert recent.is_dir()
    assert not old.exists()
