"""A job of several cells without any scheduler: forks, deaths, signals, cancellations."""

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

from looprepro.job import check_source
from looprepro.launch.base import Work, manifest_of
from looprepro.store import Store
from looprepro.store.submissions import JobCell, Submissions

MakeWork = Callable[..., list[Work]]
PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def start(store: Store, fake: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """``start(work, **FAKE_...)``: a job of these cells; scontrol notes its words in ``tmp_path/scontrol``."""
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "scontrol").write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/scontrol\n')
    (commands / "scontrol").chmod(0o755)

    def start(work: list[Work], requeue: bool = True, **behaviour: str) -> subprocess.Popen[str]:
        submissions = Submissions(store)
        settings = {"wait": True, "runner": "fake_training:run_cell", "requeue": requeue, "beat_seconds": 0.1}
        folder = submissions.folder / "one"
        document = manifest_of(store, work, store.highest_attempts(item.id for item in work), **settings)
        submissions.create(
            "one",
            profile="test",
            poll_seconds=1.0,
            requeue=requeue,
            source="",
            jobs=[[JobCell(item.id, 0) for item in work]],
            manifests=[{**document, "submission": str(folder)}],
            script="",
        )
        environment = {
            **os.environ,
            **fake,
            **behaviour,
            "PATH": f"{commands}:{os.environ['PATH']}",
            "SLURM_ARRAY_JOB_ID": "34",
            "SLURM_ARRAY_TASK_ID": "0",
        }
        command = [sys.executable, "-P", "-m", "looprepro.job", str(folder / "manifests" / "0.json")]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, error = process.communicate(timeout=60)
    return process.returncode, out + error


def wait_for_steps(store: Store, work: list[Work], step: int = 3) -> None:
    end = time.monotonic() + 30
    while any(one.step < step for one in store.presence(item.id for item in work).values()):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_cells_run_side_by_side_in_processes_of_their_own(store: Store, make_work: MakeWork, start, journal) -> None:
    work = make_work(4)
    code, _ = finish(start(work))
    assert code == 0
    assert {one.status for one in store.presence(item.id for item in work).values()} == {"done"}
    assert len({entry["pid"] for entry in journal()}) == 4
    for seed, item in enumerate(work):
        (log,) = store.log_files(item.id)
        assert f"training seed {seed} from" in log.read_text()
        assert log.read_text().count("training seed") == 1


def test_a_raising_cell_costs_itself_only_and_the_exit_code_says_so(store: Store, make_work: MakeWork, start) -> None:
    work = make_work(4)
    code, _ = finish(start(work, FAKE_RAISE="2"))
    assert code == 1
    assert [one.status for one in store.presence(item.id for item in work).values()] == ["done", "done", "failed", "done"]


def test_a_killed_cell_is_started_again_and_its_death_is_told(store: Store, make_work: MakeWork, start) -> None:
    work = make_work(3)
    code, said = finish(start(work, FAKE_KILL_ONCE="1"))
    assert code == 0
    assert "killed by SIGKILL (out of memory?)" in said
    first, second = store.reading(work[1].id).attempts
    assert (first.status, second.status) == ("lost", "done")
    assert "killed by SIGKILL" in first.cause


def test_a_cell_killed_again_and_again_is_failed_with_its_cause(store: Store, make_work: MakeWork, start) -> None:
    work = make_work(2)
    code, _ = finish(start(work, FAKE_KILL="0"))
    assert code == 1
    presence = store.presence(item.id for item in work)
    assert [one.status for one in presence.values()] == ["failed", "done"]
    assert "3 attempts in a row without progress, at step 0" in presence[work[0].id].cause


def test_the_signal_ahead_of_the_time_limit_checkpoints_all_and_requeues_once(
    store: Store, make_work: MakeWork, start, tmp_path: Path
) -> None:
    work = make_work(3, steps=1000)
    process = start(work, FAKE_STEP_SECONDS="0.05")
    wait_for_steps(store, work)
    process.send_signal(signal.SIGUSR2)
    code, said = finish(process)
    assert code == 130
    assert (tmp_path / "scontrol").read_text() == "requeue 34_0\n"
    assert "back in the queue" in said
    for item in work:
        (attempt,) = store.reading(item.id).attempts
        assert attempt.cause == "interrupted by SIGUSR2"
        assert list((store.layout.attempts(item.id) / "0001").glob("checkpoint-*"))


@pytest.mark.parametrize(("number", "requeue"), [(signal.SIGTERM, True), (signal.SIGUSR2, False)])
def test_a_job_that_is_ended_from_outside_checkpoints_and_leaves_the_queue_alone(
    store: Store, make_work: MakeWork, start, tmp_path: Path, number: signal.Signals, requeue: bool
) -> None:
    work = make_work(2, steps=1000)
    process = start(work, requeue=requeue, FAKE_STEP_SECONDS="0.05")
    wait_for_steps(store, work)
    process.send_signal(number)
    assert finish(process)[0] == 130
    assert not (tmp_path / "scontrol").exists()
    assert {store.reading(item.id).attempts[0].status for item in work} == {"interrupted"}


def test_a_job_of_which_one_process_alone_is_interrupted_says_that_work_is_missing(
    store: Store, make_work: MakeWork, start, journal, tmp_path: Path
) -> None:
    work = make_work(2, steps=40)
    process = start(work, FAKE_STEP_SECONDS="0.05")
    wait_for_steps(store, work)
    (child,) = (entry["pid"] for entry in journal() if entry["seed"] == 0)
    os.kill(child, signal.SIGTERM)
    assert finish(process)[0] == 130
    assert not (tmp_path / "scontrol").exists()
    assert [store.reading(item.id).attempts[0].status for item in work] == ["interrupted", "done"]


def test_a_cell_cancelled_while_it_runs_stops_and_the_others_finish(store: Store, make_work: MakeWork, start) -> None:
    work = make_work(2, steps=100)
    process = start(work, FAKE_STEP_SECONDS="0.05")
    wait_for_steps(store, work)
    Submissions(store).cancel("one", [work[0].id])
    assert finish(process)[0] == 0
    assert [store.reading(item.id).attempts[0].status for item in work] == ["interrupted", "done"]


def test_orphans_of_a_killed_job_checkpoint_and_leave(store: Store, make_work: MakeWork, start) -> None:
    work = make_work(2, steps=1000)
    process = start(work, FAKE_STEP_SECONDS="0.05")
    wait_for_steps(store, work)
    process.kill()
    process.communicate(timeout=30)
    end = time.monotonic() + 20
    while any(store.reading(item.id).attempts[0].end is None for item in work):
        assert time.monotonic() < end
        time.sleep(0.1)
    assert {store.reading(item.id).attempts[0].cause for item in work} == {"interrupted by parent died"}


def test_attempts_that_are_always_interrupted_before_the_first_step_are_given_up(store: Store, make_work: MakeWork) -> None:
    (item,) = make_work(1)
    store.register(item.id, item.config)
    for _ in range(3):
        attempt = store.claim(item.id)
        assert attempt
        attempt.end("interrupted", "interrupted by SIGUSR2", 0)
    assert store.reading(item.id).fruitless(after=0) == 3
    assert store.reading(item.id).fruitless(after=3) == 0


def test_other_code_than_the_submitted_one_is_refused(store: Store, make_work: MakeWork, start) -> None:
    from looprepro.files.errors import ConfigError

    with pytest.raises(ConfigError, match="not the code that was submitted"):
        check_source({"source": "0" * 64})


def test_importing_training_starts_no_thread_and_makes_no_tensor_that_a_fork_could_break() -> None:
    program = (
        "import os, gc, json, looprepro.training.run, torch\n"
        "tensors = sum(isinstance(one, torch.Tensor) and one.requires_grad for one in gc.get_objects())\n"
        "print(json.dumps([len(os.listdir('/proc/self/task')), tensors, torch.cuda.is_initialized()]))\n"
    )
    if not Path("/proc/self/task").exists():
        pytest.skip("needs /proc")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [1, 0, False]
