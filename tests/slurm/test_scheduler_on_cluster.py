"""Our reading of squeue and sacct against the real ones, and a job through submitit."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from looprepro.launch.scheduler import Scheduler, SubmissionRefused
from looprepro.launch.scheduler_answers import Exit, State

pytestmark = pytest.mark.slurm
OURS = "looprepro-test-"


@pytest.fixture
def scheduler(cluster) -> Scheduler:
    return Scheduler(OURS, interval=0.0, environment=cluster.environment)


def write(folder: Path, name: str, body: str, *lines: str) -> Path:
    script = folder / f"{name} script.sh"
    common = (f"--job-name={name}", "--output=/dev/null", "--partition=gpu", "--mem=50M", *lines)
    script.write_text("#!/bin/sh\n" + "".join(f"#SBATCH {line}\n" for line in common) + body + "\n")
    return script


def test_submitit_runs_a_job(cluster, tmp_path: Path) -> None:
    import submitit

    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="slurm")
    executor.update_parameters(timeout_min=30, mem_gb=0.2, slurm_partition="gpu")
    job = executor.submit(os.getpid)
    assert job.result() != os.getpid()
    assert cluster.wait(job.job_id, "COMPLETED")["ExitCode"] == "0:0"


def test_tasks_of_an_array_are_told_apart_while_they_wait_run_and_end(cluster, scheduler: Scheduler, tmp_path: Path) -> None:
    name = f"{OURS}array"
    body = "case $SLURM_ARRAY_TASK_ID in 0) exit 3;; 1) kill -9 $$;; 2) sleep 300;; 3) true;; *) sleep 300;; esac"
    job = scheduler.submit(write(tmp_path, name, body, "--array=0-60:1%2", "--cpus-per-task=1"), name).job
    cluster.wait(f"{job}_4", "RUNNING")
    expected = [(name, index) for index in range(61)]
    since = datetime.now() - timedelta(hours=1)

    def states() -> dict[int, State | None]:
        snapshot = scheduler.snapshot(expected, since)
        return {index: record.state if (record := snapshot.task(name, index)) else None for index in range(61)}

    wanted = {0: State.FAILED, 1: State.FAILED, 2: State.RUNNING, 3: State.COMPLETED, 4: State.RUNNING}
    wanted |= dict.fromkeys(range(5, 61), State.QUEUED)
    cluster.wait_until(lambda: states() == wanted, 20, lambda: str(states()))
    snapshot = scheduler.snapshot(expected, since)
    assert snapshot.jobs(name) == {job}
    exits = [record.exit if (record := snapshot.task(name, index)) else None for index in (0, 1, 3)]
    assert exits == [Exit(3, 0), Exit(0, 9), Exit(0, 0)]
    assert cluster.job(f"{job}_0")["ExitCode"] == "3:0"


def test_a_requeued_job_is_queued_and_counts_its_restart(cluster, scheduler: Scheduler, tmp_path: Path) -> None:
    name = f"{OURS}requeued"
    job = scheduler.submit(write(tmp_path, name, "sleep 300"), name).job
    cluster.wait(str(job), "RUNNING")
    cluster.run("scontrol", "requeue", str(job))
    cluster.wait(str(job), "PENDING", seconds=20)
    record = scheduler.snapshot([(name, None)]).task(name)
    assert record
    assert (record.state, record.restarts) == (State.QUEUED, 1)


def test_a_cancelled_job_is_cancelled_and_a_cancelled_waiting_index_is_gone(
    cluster, scheduler: Scheduler, tmp_path: Path
) -> None:
    name = f"{OURS}cancelled"
    job = scheduler.submit(write(tmp_path, name, "sleep 300", "--array=0-9%1"), name).job
    cluster.wait(f"{job}_0", "RUNNING")
    scheduler.cancel([f"{job}_0", f"{job}_5"])
    cluster.wait(f"{job}_0", "CANCELLED")
    snapshot = scheduler.snapshot([(name, index) for index in range(10)])
    running = snapshot.task(name, 0)
    assert running
    assert running.state is State.CANCELLED
    assert snapshot.queue_complete
    assert snapshot.task(name, 5) is None
    scheduler.cancel([str(job), f"{job}_5"])


def test_a_refused_script_leaves_no_job(scheduler: Scheduler, tmp_path: Path) -> None:
    name = f"{OURS}refused"
    with pytest.raises(SubmissionRefused, match="nvalid partition"):
        scheduler.submit(write(tmp_path, name, "true", "--partition=nowhere"), name)
    assert scheduler.find(name) == frozenset()


def test_a_job_is_found_by_its_name(cluster, scheduler: Scheduler, tmp_path: Path) -> None:
    name = f"{OURS}found"
    job = scheduler.submit(write(tmp_path, name, "true", "--hold"), name).job
    assert scheduler.find(name) == {job}
    assert scheduler.find(name[:-1]) == frozenset()
