"""Tiny cells under random faults, and arrays at the limit of MaxArraySize: every cell once, every number as undisturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm
SCRIPTS = Path(__file__).resolve().parents[2] / "slurm" / "test-cluster"


class Faults:
    """What may go wrong, one at a time, by a random choice that the seed fixes."""

    def __init__(self, cluster: Any, sweep: Any, seed: int) -> None:
        self.cluster, self.sweep, self.random = cluster, sweep, random.Random(seed)
        self.done: list[str] = []

    def strike(self) -> None:
        """One fault, where it can hit anything."""
        kinds = (
            self.kill_cell,
            self.kill_cell,
            self.kill_job,
            self.requeue,
            self.signal,
            self.cancel,
            self.node,
            self.controller,
        )
        fault = self.random.choice(kinds)
        if fault():
            self.done.append(fault.__name__)

    def running(self) -> list[Any]:
        found = self.sweep.store.readings(item.id for item in self.sweep.work)
        return [reading.highest for reading in found if reading.presence.status == "running" and reading.highest]

    def tasks(self) -> list[str]:
        said = self.cluster.run("squeue", "--noheader", "--states=R", "--format=%i", f"--user={os.getuid()}")
        return sorted(said.split())

    def kill_cell(self) -> bool:
        running = self.running()
        if running:
            _kill(self.random.choice(running).owner["pid"])
        return bool(running)

    def kill_job(self) -> bool:
        running = self.running()
        if running:
            stat = Path(f"/proc/{self.random.choice(running).owner['pid']}/stat")
            if stat.exists():
                _kill(int(stat.read_text().rpartition(") ")[2].split()[1]))
        return bool(running)

    def requeue(self) -> bool:
        return self._on_a_task("scontrol", "requeue")

    def signal(self) -> bool:
        return self._on_a_task("scancel", "--signal=USR2")

    def cancel(self) -> bool:
        return self._on_a_task("scancel")

    def node(self) -> bool:
        self.cluster.run("scontrol", "update", "nodename=n1", "state=down", "reason=chaos")
        time.sleep(8)
        if "DOWN" in self.cluster.run("sinfo", "--noheader", "--format=%T", "--nodes=n1").upper():
            self.cluster.run("scontrol", "update", "nodename=n1", "state=resume")
        return True

    def controller(self) -> bool:
        _kill(int((self.cluster.state / "run" / "slurmctld.pid").read_text()), signal.SIGTERM)
        time.sleep(2)
        subprocess.run([SCRIPTS / "up.sh", self.cluster.state], check=True, capture_output=True, timeout=60)
        return True

    def _on_a_task(self, *command: str) -> bool:
        tasks = self.tasks()
        if tasks:
            words = ["timeout", "10", *command, self.random.choice(tasks)]  # a node that is down keeps scancel waiting
            subprocess.run(words, env=self.cluster.environment, capture_output=True, timeout=30, check=False)
        return bool(tasks)


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def expected(sweep: Any) -> dict[str, Any]:
    """The numbers of an undisturbed run, worked out here from the rule of the fake training."""
    numbers = {}
    for item in sweep.work:
        total = 0.5
        for _ in range(item.steps):
            total = (total * 1.5 + item.config["seed"]) % 7
        numbers[item.id] = {item.evaluations[0][0]: {"accuracy": {"value": total * 8, "items": 1}}}
    return numbers


def chaos(cluster: Any, sweep: Any, seconds: float) -> None:
    """Faults while the same command is given again and again; then quiet, until everything is complete."""
    seed = int(os.environ.get("LOOPREPRO_CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    print(f"LOOPREPRO_CHAOS_SEED={seed}")
    faults = Faults(cluster, sweep, seed)
    sweep.command(tries=1000)
    end = time.monotonic() + seconds
    while time.monotonic() < end and sweep.command(tries=1000).exit_code:
        faults.strike()
        time.sleep(faults.random.uniform(0.5, 3.0))
    print(f"faults: {faults.done}")
    progress = sweep.command(tries=1000)
    while progress.exit_code and time.monotonic() < end + seconds:
        progress = sweep.command(tries=1000)
        time.sleep(2)
    assert progress.exit_code == 0, f"{sweep.status()}\n{sweep.logs()[-4000:]}"
    assert sweep.numbers() == expected(sweep)
    assert sorted(sweep.finished()) == list(range(len(sweep.work)))
    assert len(faults.done) >= 5


def test_forty_cells_survive_random_faults(cluster, make_sweep: Callable[..., Any]) -> None:
    sweep = make_sweep(cells=40, steps=60, step_seconds=0.15)
    chaos(cluster, sweep, 130)


@pytest.mark.slow
def test_two_hundred_cells_survive_random_faults(cluster, make_sweep: Callable[..., Any]) -> None:
    sweep = make_sweep(cells=200, steps=60, step_seconds=0.15)
    chaos(cluster, sweep, 900)


def test_forty_five_cells_fit_arrays_whose_index_may_not_pass_ten(
    start_cluster, make_sweep_on: Callable[..., Any], tmp_path: Path
) -> None:
    with start_cluster("--max-array-size", "11", "--cpus", "16", "--mem", "8000") as cluster:
        sweep = make_sweep_on(cluster, tmp_path, 45, 2, 0.0, max_array_size=11, cells_per_job=2, array_parallelism=8)
        assert sweep.command(wait=True).exit_code == 0
        assert [len(one.jobs) for one in sweep.submissions()] == [11, 11, 1]
        for job, size in zip(sweep.jobs(), (11, 11, 1), strict=True):
            for index in range(size):
                cluster.wait(f"{job}_{index}", "COMPLETED")
        assert sweep.numbers() == expected(sweep)
        assert sorted(sweep.finished()) == list(range(45))
