"""What ends jobs early, on the real cluster: the status and cause shown, and that the same command completes the sweep."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm
SCRIPTS = Path(__file__).resolve().parents[2] / "slurm" / "test-cluster"
MakeSweep = Callable[..., Any]


def quiet(sweep: Any) -> dict[str, Any]:
    """The numbers of an undisturbed run, worked out here from the rule of the fake training."""
    numbers = {}
    for item in sweep.work:
        total = 0.5
        for _ in range(item.steps):
            total = (total * 1.5 + item.config["seed"]) % 7
        numbers[item.id] = {item.evaluations[0][0]: {"accuracy": {"value": total * 8, "items": 1}}}
    return numbers


def assert_complete(sweep: Any) -> None:
    """Every cell is done, with the numbers of an undisturbed run, and finished once."""
    assert sweep.numbers() == quiet(sweep)
    assert sorted(sweep.finished()) == list(range(len(sweep.work)))


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody collects."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True


def test_a_sweep_returns_at_once_and_a_second_command_submits_nothing_twice(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=6, steps=10)
    first = sweep.command()
    assert first.finished
    assert first.exit_code == 1
    assert {known.status for known in first.presence.values()} == {"queued"}
    again = sweep.command()
    assert again.exit_code == 1
    assert len(sweep.jobs()) == 1
    assert sweep.command(wait=True).exit_code == 0
    assert len(sweep.jobs()) == 1
    for index in (0, 1):
        assert cluster.wait(f"{sweep.jobs()[0]}_{index}", "COMPLETED")["ExitCode"] == "0:0"
    assert_complete(sweep)
    assert sweep.command().exit_code == 0


def test_a_requeue_from_outside_checkpoints_and_goes_on_by_itself(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=60)
    sweep.command()
    sweep.wait_for_steps(8)
    cluster.run("scontrol", "requeue", f"{sweep.jobs()[0]}_0")
    sweep.wait_for("queued", seconds=20)
    assert all("requeued" in cause and "attempt 1 stopped at step" in cause for cause in sweep.causes())
    assert sweep.command().exit_code == 1  # it is still ours: nothing is submitted again
    assert len(sweep.jobs()) == 1
    assert sweep.command(wait=True).exit_code == 0
    assert cluster.wait(f"{sweep.jobs()[0]}_0", "COMPLETED")["Restarts"] == "1"
    reading = sweep.store.reading(sweep.work[0].id)
    assert [attempt.status for attempt in reading.attempts] == ["interrupted", "done"]
    assert "resumed" not in reading.attempts[0].cause
    assert_complete(sweep)


def test_a_preempted_job_checkpoints_makes_way_and_comes_back(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=60, partition="preempt", cpus=2)
    sweep.command()
    sweep.wait_for_steps(8)
    urgent = cluster.run("sbatch", "--parsable", "--partition=gpu", "--cpus-per-task=2", "--output=/dev/null", "--wrap=sleep 1")
    cluster.wait(urgent.strip(), "RUNNING", seconds=20)
    assert set(sweep.statuses()) == {"queued"}
    assert sweep.command(wait=True).exit_code == 0
    assert cluster.job(f"{sweep.jobs()[0]}_0")["Restarts"] == "1"
    reading = sweep.store.reading(sweep.work[0].id)
    assert [attempt.status for attempt in reading.attempts] == ["interrupted", "done"]
    assert reading.attempts[0].cause == "interrupted by SIGUSR2"
    assert_complete(sweep)


def test_a_job_at_its_time_limit_checkpoints_and_goes_on(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=2, steps=450, time="0:01:00", signal_lead=15)
    sweep.command()
    assert sweep.command(wait=True).exit_code == 0
    assert int(cluster.wait(f"{sweep.jobs()[0]}_0", "COMPLETED")["Restarts"]) >= 1
    causes = {attempt.cause for attempt in sweep.store.reading(sweep.work[0].id).attempts[:-1]}
    assert causes == {"interrupted by SIGUSR2"}
    assert_complete(sweep)


def test_a_job_at_its_time_limit_on_a_cluster_without_requeue_is_resubmitted_by_the_same_command(
    cluster, make_sweep: MakeSweep
) -> None:
    sweep = make_sweep(steps=40, requeue=False)
    sweep.command()
    sweep.wait_for_steps(8)
    cluster.run("scancel", "--signal=USR2", f"{sweep.jobs()[0]}_0")  # what SLURM sends ahead of the limit
    cluster.wait(f"{sweep.jobs()[0]}_0", "FAILED")
    sweep.wait_for("planned", seconds=10)
    assert set(sweep.causes()) == {"interrupted by SIGUSR2"}
    assert sweep.command(wait=True).exit_code == 0
    assert len(sweep.jobs()) == 2
    assert_complete(sweep)


def test_an_array_cancelled_by_scancel_is_shown_cancelled_and_submitted_again(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=40)
    sweep.command()
    sweep.wait_for_steps(8)
    cluster.run("scancel", sweep.jobs()[0])
    cluster.wait(f"{sweep.jobs()[0]}_0", "CANCELLED")
    sweep.wait_for("cancelled", seconds=10)
    assert all("its job was cancelled at step" in cause for cause in sweep.causes())
    assert sweep.command(wait=True).exit_code == 0
    assert_complete(sweep)


def test_a_killed_cell_starts_again_in_its_job_and_the_others_go_on(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=40)
    sweep.command()
    sweep.wait_for_steps(8)
    os.kill(sweep.owner(2)["pid"], signal.SIGKILL)
    assert sweep.command(wait=True).exit_code == 0
    assert cluster.wait(f"{sweep.jobs()[0]}_0", "COMPLETED")["Restarts"] == "0"
    attempts = [sweep.store.reading(item.id).attempts for item in sweep.work]
    assert [len(one) for one in attempts] == [1, 1, 2, 1]
    assert "killed by SIGKILL (out of memory?)" in attempts[2][0].cause
    assert_complete(sweep)


def test_a_cell_that_is_always_killed_is_failed_with_its_cause_and_its_job_too(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=5, fake={"FAKE_KILL": "1"})
    assert sweep.command(wait=True).exit_code == 1
    assert sweep.statuses() == ["done", "failed", "done", "done"]
    assert "3 attempts in a row without progress, at step 0" in sweep.causes()[1]
    assert "SIGKILL" in sweep.causes()[1]
    assert cluster.wait(f"{sweep.jobs()[0]}_0", "FAILED")["ExitCode"] == "1:0"
    assert len(sweep.store.reading(sweep.work[1].id).attempts) == 4  # three tries, and the one that says so


def test_a_killed_job_is_lost_with_its_exit_and_the_same_command_completes_it(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=60)
    sweep.command()
    sweep.wait_for_steps(8)
    pack = int(Path(f"/proc/{sweep.owner(0)['pid']}/stat").read_text().rpartition(") ")[2].split()[1])
    for pid in [pack, *(sweep.owner(index)["pid"] for index in range(4))]:
        os.kill(pid, signal.SIGKILL)
    cluster.wait(f"{sweep.jobs()[0]}_0", "FAILED")
    sweep.wait_for("lost", seconds=10)
    assert all("ended as FAILED, exit code 137" in cause for cause in sweep.causes())
    assert sweep.command(wait=True).exit_code == 0
    assert len(sweep.jobs()) == 2
    assert_complete(sweep)


def test_a_job_over_its_memory_limit_says_so_and_is_not_tried_again_unasked(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=1, steps=5, fake={"FAKE_HOG": "0"})
    assert sweep.command(wait=True).exit_code == 1
    assert sweep.statuses() == ["lost"]
    assert "over its memory limit" in sweep.causes()[0]
    assert sweep.command().exit_code == 1
    assert len(sweep.jobs()) == 1
    assert any("--retry-failed" in line for line in sweep.said)
    Path(f"{sweep.journal_path}.fed").touch()
    assert sweep.command(wait=True, retry_failed=True).exit_code == 0
    assert_complete(sweep)


def test_cells_of_a_node_that_went_down_go_on_when_it_is_back(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(steps=60)
    sweep.command()
    sweep.wait_for_steps(8)
    cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=test")
    try:
        sweep.wait_for("queued", seconds=30)
        assert sweep.command().exit_code == 1
        assert len(sweep.jobs()) == 1
    finally:
        time.sleep(8)  # a node that is resumed while its old job is being killed may run both
        if "DOWN" in cluster.run("sinfo", "--noheader", "--format=%T", "--nodes=n1").upper():
            cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    assert sweep.command(wait=True).exit_code == 0
    assert_complete(sweep)


def test_a_restarted_controller_loses_neither_waiting_nor_running_jobs(cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(cells=6, steps=60, cpus=2)  # the second job waits for the first
    sweep.command()
    first = [item.id for item in sweep.work[:4]]
    cluster.wait_until(
        lambda: all(one.step >= 5 for one in sweep.store.presence(first).values()), 30, lambda: str(sweep.status())
    )
    pid = int((cluster.state / "run" / "slurmctld.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    cluster.wait_until(lambda: has_ended(pid), 20, lambda: "slurmctld still runs")
    subprocess.run([SCRIPTS / "up.sh", cluster.state], check=True, capture_output=True, timeout=60)
    assert sweep.statuses() == ["running"] * 4 + ["queued"] * 2
    assert sweep.command(wait=True).exit_code == 0
    assert len(sweep.jobs()) == 1
    assert [len(sweep.store.reading(item.id).attempts) for item in sweep.work] == [1] * 6
    assert_complete(sweep)
