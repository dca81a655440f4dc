"""Exactly one process holds a cell; a dead one holds nothing; a living one is never robbed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from looprepro.files.errors import StoreError
from looprepro.store import Attempt, Store, Superseded
from looprepro.store.owner import FOREIGN_SILENCE, REBOOT_SILENCE, process_started

RACER = """
import sys, time
from looprepro.store import Store
store = Store(sys.argv[1])
while time.time() < float(sys.argv[2]):
    pass
print(*[i for i in range(25) if store.claim(f"cell-{i}") is not None])
time.sleep(2)  # live until all racers have looked: a dead winner's cells would be free again
"""
KILLED_BEFORE_RENAME = """
import os, signal, sys
from looprepro.store import Store
import looprepro.store.reservation as reservation
reservation.os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Store(sys.argv[1]).claim("cell")
"""
HOLDER = """
import sys, time
from looprepro.store import Store
assert Store(sys.argv[1]).claim("cell") is not None
print("held", flush=True)
time.sleep(60)
"""


def _rewrite_owner(attempt: Attempt, **changes: object) -> None:
    path = attempt.path / "owner.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _silence(attempt: Attempt, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(attempt.path / "heartbeat", (then, then))


def _claim(store: Store) -> Attempt:
    attempt = store.claim("cell")
    assert attempt is not None
    return attempt


def test_of_racing_processes_exactly_one_gets_each_cell(store: Store) -> None:
    start = str(time.time() + 1.0)
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(store.root), start], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    won = [int(cell) for racer in racers for cell in racer.communicate(timeout=60)[0].split()]
    assert sorted(won) == list(range(25))
    assert all(os.listdir(store.layout.attempts(f"cell-{i}")) == ["0001"] for i in range(25))


def test_a_process_killed_before_its_rename_holds_nothing(store: Store) -> None:
    dead = subprocess.run([sys.executable, "-c", KILLED_BEFORE_RENAME, str(store.root)], check=False, timeout=60)
    assert dead.returncode == -signal.SIGKILL
    left = os.listdir(store.layout.attempts("cell"))
    assert len(left) == 1
    assert left[0].startswith(".claim-")
    assert store.presence(["cell"])["cell"].status == "planned"
    assert [item.path.name for item in store.garbage()] == left  # and gc offers what it left
    assert _claim(store).number == 1


def test_a_killed_holder_is_lost_and_its_cell_is_taken_over(store: Store) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(store.root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert store.claim("cell") is None
    assert store.presence(["cell"])["cell"].status == "running"
    holder.kill()
    # Not waited for yet: a zombie still has a process id, and is dead all the same.
    deadline = time.monotonic() + 5
    while store.presence(["cell"])["cell"].status == "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    presence = store.presence(["cell"])["cell"]
    assert presence.status == "lost"
    assert f"process {holder.pid}" in presence.cause
    assert _claim(store).number == 2
    holder.communicate()


def test_a_reused_process_id_is_not_the_owner(store: Store) -> None:
    attempt = _claim(store)
    assert store.claim("cell") is None
    _rewrite_owner(attempt, process_start="1")
    assert _claim(store).number == 2


def test_the_start_of_a_process_tells_it_from_others() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_started(other.pid)
    assert started
    assert process_started(other.pid) == started
    other.communicate(b"\n")
    assert process_started(other.pid) is None


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"host": "another-node", "pid": 1}, FOREIGN_SILENCE),
        ({"namespace": "pid:[1]", "pid": 1}, FOREIGN_SILENCE),
        ({"boot": "an-earlier-boot"}, REBOOT_SILENCE),
    ],
    ids=["other host", "other container", "rebooted"],
)
def test_an_owner_out_of_sight_is_dead_only_after_the_limit(store: Store, changes: dict[str, object], limit: float) -> None:
    attempt = _claim(store)
    _rewrite_owner(attempt, **changes)
    _silence(attempt, limit - 20)
    assert store.claim("cell") is None
    assert store.presence(["cell"])["cell"].status == "running"
    _silence(attempt, limit + 20)
    assert store.presence(["cell"])["cell"].status == "lost"
    assert _claim(store).number == 2


def test_silence_is_measured_by_the_clock_of_the_file_system(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = _claim(store)
    _rewrite_owner(attempt, host="another-node")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 10 * FOREIGN_SILENCE)  # our clock is hours ahead
    assert store.claim("cell") is None


def test_an_unreadable_owner_is_judged_by_its_heartbeat(store: Store) -> None:
    attempt = _claim(store)
    (attempt.path / "owner.json").write_bytes(b"")
    assert store.claim("cell") is None
    _silence(attempt, FOREIGN_SILENCE + 20)
    assert _claim(store).number == 2


def test_a_requeued_slurm_job_does_not_wait_for_its_first_copy(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "0")
    first = _claim(store)
    _rewrite_owner(first, host="the-first-node")
    assert store.claim("cell") is None  # another job that got the same id waits
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    second = _claim(store)
    second.ensure_owner()
    with pytest.raises(Superseded, match="attempt 1 was superseded, attempt 2 owns"):
        first.publish_result({"status": "done", "step": 1})
    with pytest.raises(Superseded):
        first.write_evaluation("T1", {"metrics": {}})
    assert not (first.cell_path / "result.json").exists()


def test_a_cell_finished_meanwhile_is_not_claimed(store: Store) -> None:
    first = _claim(store)
    first.publish_result({"status": "done", "step": 1})
    first.end("done", step=1)
    assert store.claim("cell", needed=lambda: store.presence(["cell"])["cell"].status != "done") is None
    assert store.presence(["cell"])["cell"].attempts == 1


def test_half_made_and_foreign_entries_are_no_attempts(store: Store) -> None:
    folder = store.layout.attempts("cell")
    (folder / ".claim-abc.tmp").mkdir(parents=True)
    (folder / "0007.bak").mkdir()
    (folder / "0005").write_text("a file")
    assert store.presence(["cell"])["cell"].attempts == 0
    assert _claim(store).number == 1


def test_a_link_in_the_way_is_refused_and_nothing_is_written_through_it(store: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store.layout.cells.mkdir(parents=True)
    (store.layout.cells / "cell").symlink_to(outside)
    with pytest.raises(StoreError, match="symbolic link"):
        store.claim("cell")
    with pytest.raises(StoreError, match="symbolic link"):
        store.register("cell", {"seed": 1})
    assert "symbolic link" in store.presence(["cell"])["cell"].cause
    assert store.ids() == []
    assert list(outside.iterdir()) == []


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "runs").claim("cell")
    assert str(tmp_path / "runs") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_owner_is_on_this_host(store: Store) -> None:
    owner = json.loads((_claim(store).path / "owner.json").read_text())
    assert (owner["host"], owner["pid"]) == (socket.gethostname(), os.getpid())
