"""Worker processes on one machine: every cell once, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import looprepro.launch.local as local
from looprepro.files.errors import IdentityCollision, StoreError
from looprepro.launch.base import Progress, Work, manifest_of
from looprepro.launch.inline import InlineExecutor
from looprepro.launch.local import LocalExecutor
from looprepro.store import Store
from looprepro.worker import run_manifest

Journal = Callable[[], list[dict[str, Any]]]
MakeWork = Callable[..., list[Work]]
RUNNER = {"runner": "fake_training:run_cell", "beat_seconds": 0.02}
LAUNCHER = """
import json, sys
from looprepro.config.cell import Execution
from looprepro.launch.base import Work
from looprepro.launch.local import LocalExecutor
from looprepro.store import Store
work = [Work(w["id"], w["config"], tuple(map(tuple, w["evaluations"])), Execution(), 0) for w in json.load(open(sys.argv[2]))]
settings = {"runner": "fake_training:run_cell", "beat_seconds": 0.02}
for progress in LocalExecutor(jobs=2, poll_seconds=0.05, settings=settings).run(Store(sys.argv[1]), work):
    print(*progress.messages, sep="\\n", flush=True)
sys.exit(progress.exit_code)
"""


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "available_cores", lambda: 2)


def _executor(fake: dict[str, str], **behaviour: str) -> LocalExecutor:
    environment = {**fake, **{f"FAKE_{name}": value for name, value in behaviour.items()}}
    return LocalExecutor(poll_seconds=0.05, environment=environment, settings=RUNNER, grace_seconds=20)


def _launcher(store: Store, work: list[Work], fake: dict[str, str], tmp_path: Path, **behaviour: str) -> subprocess.Popen[str]:
    path = tmp_path / "work.json"
    path.write_text(json.dumps([{"id": w.id, "config": w.config, "evaluations": w.evaluations} for w in work]))
    environment = {**os.environ, **fake, **{f"FAKE_{name}": value for name, value in behaviour.items()}}
    command = [sys.executable, "-c", LAUNCHER, str(store.root), str(path)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _values(store: Store, work: list[Work]) -> dict[str, Any]:
    return {r.id: {name: e["metrics"] for name, e in r.evaluations.items()} for r in store.readings(w.id for w in work)}


def _finished(journal: Journal) -> list[int]:
    return sorted(entry["seed"] for entry in journal() if entry["event"] == "finished")


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_every_cell_runs_once_on_both_workers_and_progress_tells(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(6, steps=5)
    seen: list[Progress] = list(_executor(fake, STEP_SECONDS="0.05").run(store, work))
    assert (seen[-1].finished, seen[-1].exit_code, len(seen[-1].complete)) == (True, 0, 6)
    assert [p.finished for p in seen[:-1]] == [False] * (len(seen) - 1)
    assert list(seen[0].presence) == [item.id for item in work]
    assert any(0 < p.step < 5 and p.status == "running" for progress in seen for p in progress.presence.values())
    assert _finished(journal) == [0, 1, 2, 3, 4, 5]
    trained = [entry for entry in journal() if entry["event"] == "train"]
    assert len(trained) == 6
    assert len({entry["pid"] for entry in trained}) == 2
    assert {entry["threads"] for entry in trained} == {"1"}
    again = list(_executor(fake).run(store, work))
    assert (len(again), again[0].exit_code) == (1, 0)  # no process is started for nothing
    assert list(store.layout.launches.iterdir()) == []


def test_the_longest_cells_are_started_first_and_equal_ones_in_the_order_of_the_sweep(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    """Seeds 1 and 4 train as one pack: together they take longest. Where one estimate is unknown the order is the sweep's."""
    work = [replace(item, pack="p") if seed in (1, 4) else item for seed, item in enumerate(make_work(6))]
    hours = dict(zip((item.id for item in work), (1.0, 1.2, 2.0, 1.0, 1.2, 0.0), strict=True))
    executor = replace(_executor(fake), jobs=1, hours=hours)
    assert list(executor.run(store, work))[-1].exit_code == 0
    assert [entry["seed"] for entry in journal() if entry["event"] == "train"] == [1, 4, 2, 0, 3, 5]
    unknown = make_work(8)[6:]
    executor = replace(executor, hours={unknown[0].id: None, unknown[1].id: 1.0})
    assert list(executor.run(store, unknown))[-1].exit_code == 0
    assert [entry["seed"] for entry in journal() if entry["event"] == "train"][6:] == [6, 7]


def test_all_workers_take_the_longest_that_is_left(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(6, steps=3)
    hours = {item.id: float(seed) for seed, item in enumerate(work)}
    executor = replace(_executor(fake, STEP_SECONDS="0.1"), hours=hours)
    assert list(executor.run(store, work))[-1].exit_code == 0
    trained = [entry["seed"] for entry in journal() if entry["event"] == "train"]
    assert sorted(trained[:2]) == [4, 5], "two workers take the first two; one that starts late leaves them to the other"


def test_two_commands_at_once_run_each_cell_once_and_both_end_complete(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal, tmp_path: Path
) -> None:
    work = make_work(8, steps=3)
    launchers = [_launcher(store, work, fake, tmp_path, STEP_SECONDS="0.05") for _ in range(2)]
    assert [launcher.wait(timeout=60) for launcher in launchers] == [0, 0], [p.stdout and p.stdout.read() for p in launchers]
    for launcher in launchers:
        launcher.communicate()
    assert _finished(journal) == list(range(8))
    assert [entry["event"] for entry in journal()].count("train") == 8
    assert {p.attempts for p in store.presence(w.id for w in work).values()} == {1}


def test_a_killed_worker_is_noticed_and_replaced_and_its_cell_resumed(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(4, steps=4)
    seen = list(_executor(fake, KILL_ONCE="1,2").run(store, work))
    assert seen[-1].exit_code == 0
    messages = [message for progress in seen for message in progress.messages]
    assert sum("was killed by SIGKILL" in message for message in messages) == 2
    assert any(work[1].id in message for message in messages)
    assert any(p.status == "lost" for progress in seen for p in progress.presence.values())
    assert _finished(journal) == [0, 1, 2, 3]


def test_a_cell_that_kills_every_worker_is_given_up_as_lost_and_the_rest_goes_on(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(4)
    last = list(_executor(fake, KILL="2").run(store, work))[-1]
    assert last.exit_code == 1
    assert [last.presence[item.id].status for item in work] == ["done", "done", "lost", "done"]
    assert last.presence[work[2].id].attempts == 3
    assert _finished(journal) == [0, 1, 3]


def test_workers_that_die_before_any_cell_end_the_command(store: Store, make_work: MakeWork, fake: dict[str, str]) -> None:
    # The interpreter itself is broken: sitecustomize runs before everything.
    broken = Path(fake["FAKE_JOURNAL"]).parent / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import os\nos.write(2, b'broken installation\\n')\nos._exit(77)\n")
    executor = _executor({**fake, "PYTHONPATH": f"{broken}:{fake['PYTHONPATH']}"})
    seen = list(executor.run(store, make_work(2)))
    messages = [message for progress in seen for message in progress.messages]
    assert seen[-1].exit_code == 1
    assert sum("ended with exit code 77 while it held no cell" in message for message in messages) <= 4
    assert "broken installation" in messages


def test_a_failing_cell_makes_exit_code_1_and_the_others_finish(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(3)
    assert list(_executor(fake, RAISE="0").run(store, work))[-1].exit_code == 1
    seen = list(_executor(fake).run(store, work))
    assert seen[0].presence[work[0].id].status != "failed"  # that was the command before
    assert seen[-1].exit_code == 0
    assert sorted(e["seed"] for e in journal() if e["event"] == "train") == [0, 0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_checkpoints_and_the_same_command_goes_on_from_there(
    store: Store,
    make_work: MakeWork,
    fake: dict[str, str],
    journal: Journal,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    work = make_work(2, steps=1000)
    launcher = _launcher(store, work, fake, tmp_path, STEP_SECONDS="0.01")
    _until(lambda: all(p.step > 3 for p in store.presence(w.id for w in work).values()))
    launcher.send_signal(number)
    output, _ = launcher.communicate(timeout=30)
    assert launcher.returncode == 130
    assert output.count("stopping after a checkpoint") == 1
    stopped = store.presence(w.id for w in work)
    assert {(p.status, p.cause) for p in stopped.values()} == {("planned", "interrupted by SIGTERM")}
    assert list(_executor(fake).run(store, work))[-1].exit_code == 0
    resumed = {e["seed"]: e["step"] for e in journal() if e["event"] == "train"}
    assert resumed == {seed: stopped[item.id].step for seed, item in enumerate(work)}


def test_a_second_interrupt_kills_workers_that_do_not_stop(store: Store, make_work: MakeWork, fake: dict[str, str]) -> None:
    work = make_work(2, steps=2)
    executor = _executor(fake, STEP_SECONDS="30")  # looks at stop() only every 30 s
    progress = None
    start = time.monotonic()
    for progress in executor.run(store, work):
        if executor._interrupts < 2 and sum(p.status == "running" for p in progress.presence.values()) == 2:
            executor.interrupt()
    assert progress is not None
    assert progress.exit_code == 130
    assert {p.status for p in progress.presence.values()} == {"lost"}
    assert time.monotonic() - start < 20


def test_workers_whose_launcher_was_killed_checkpoint_and_leave(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal, tmp_path: Path
) -> None:
    work = make_work(2, steps=100_000)
    launcher = _launcher(store, work, fake, tmp_path, STEP_SECONDS="0.01")
    _until(lambda: all(p.step > 3 for p in store.presence(w.id for w in work).values()))
    launcher.kill()
    launcher.communicate()
    _until(lambda: all(p.status == "planned" for p in store.presence(w.id for w in work).values()))
    assert {p.cause for p in store.presence(w.id for w in work).values()} == {"interrupted by parent died"}
    _until(lambda: all(_is_gone(entry["pid"]) for entry in journal()))


def test_a_caller_that_stops_listening_leaves_no_worker_behind(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(2, steps=100_000)
    running = _executor(fake, STEP_SECONDS="0.01").run(store, work)
    for progress in running:
        if all(p.step > 1 for p in progress.presence.values()):
            break
    running.close()  # type: ignore[attr-defined]
    assert {p.status for p in store.presence(w.id for w in work).values()} == {"planned"}
    assert all(_is_gone(entry["pid"]) for entry in journal())


def test_a_cell_held_by_another_command_that_dies_is_taken_over(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal, tmp_path: Path
) -> None:
    (item,) = make_work(1, steps=3)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(manifest_of(store, [item], {}, **RUNNER)))
    environment = {**os.environ, **fake, "FAKE_STEP_SECONDS": "60"}
    other = subprocess.Popen([sys.executable, "-m", "looprepro.worker", str(path)], env=environment)
    _until(lambda: store.presence([item.id])[item.id].status == "running")
    threading.Timer(1.0, other.kill).start()
    last = list(_executor(fake).run(store, [item]))[-1]
    other.wait()
    assert last.exit_code == 0
    assert [entry["event"] for entry in journal()].count("train") == 2
    assert _finished(journal) == [0]


def test_random_kills_change_no_number(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal, tmp_path: Path
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # shown if it fails
    choose = random.Random(seed)
    work = make_work(6, steps=40, budgets=(8, 16))
    quiet = Store(tmp_path / "quiet")
    assert list(_executor(fake).run(quiet, work))[-1].exit_code == 0
    (tmp_path / "journal").unlink()
    executor = _executor(fake, STEP_SECONDS="0.01", CHECKPOINT_EVERY="4")
    executor.tries = 100
    kills = 0
    stop = threading.Event()

    def kill_now_and_then() -> None:
        nonlocal kills
        while kills < 8 and not stop.wait(choose.uniform(0.05, 0.4)):
            running = [r for r in store.readings(w.id for w in work) if r.highest and r.highest.status == "running"]
            if running:
                victim = choose.choice(running).highest
                assert victim is not None
                if not _is_gone(victim.owner["pid"]):
                    os.kill(victim.owner["pid"], signal.SIGKILL)
                    kills += 1

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    last = list(executor.run(store, work))[-1]
    stop.set()
    killer.join()
    assert kills > 0
    assert last.exit_code == 0
    assert _values(store, work) == _values(quiet, work)
    # Noted by whoever published the result; a kill between result and note loses the note, never doubles it.
    assert len(set(_finished(journal))) == len(_finished(journal))


def test_a_collision_is_raised_before_anything_runs(
    store: Store, make_work: MakeWork, fake: dict[str, str], journal: Journal
) -> None:
    work = make_work(2)
    store.register(work[1].id, {**work[1].config, "seed": 99})
    with pytest.raises(IdentityCollision, match="seed: stored 99, asked 1"):
        list(_executor(fake).run(store, work))
    assert not store.layout.launches.exists()
    assert journal() == []


def test_an_unwritable_runs_folder_is_raised_before_anything_runs(
    tmp_path: Path, make_work: MakeWork, fake: dict[str, str]
) -> None:
    (tmp_path / "runs").symlink_to("/proc/self")  # where nobody, not even root, can make a folder
    with pytest.raises(StoreError, match="cannot make"):
        list(_executor(fake).run(Store(tmp_path / "runs"), make_work(1)))


def test_cores_are_never_oversubscribed() -> None:
    executor = LocalExecutor()
    assert executor.jobs_for(threads=1, cells=10) == (2, "")
    assert executor.jobs_for(threads=2, cells=10) == (1, "")
    assert executor.jobs_for(threads=8, cells=10) == (1, "")
    assert executor.jobs_for(threads=1, cells=1) == (1, "")
    jobs, message = LocalExecutor(jobs=16).jobs_for(threads=1, cells=100)
    assert jobs == 2
    assert message == "jobs lowered from 16 to 2: 2 cores, 1 threads per cell"


def test_the_inline_executor_runs_in_this_process(
    store: Store, make_work: MakeWork, fake: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def run_inline(manifest: Any) -> int:
        def run_cell(cell: Any, evaluations: Any, execution: Any, attempt: Any, stop: Any) -> Any:
            calls.append((cell.seed, os.getpid()))
            raise ValueError("seen")

        return run_manifest(manifest, run_cell=run_cell, redirect=False)

    first, last = InlineExecutor(run_inline).run(store, make_work(2))
    assert (first.finished, last.finished, last.exit_code) == (False, True, 1)
    assert calls == [(0, os.getpid()), (1, os.getpid())]
    assert {p.status for p in last.presence.values()} == {"failed"}
