"""The real one-node cluster of slurm/test-cluster, started once for the session and always stopped.

``LOOPREPRO_TEST_ACCT=dbd`` runs the tests with slurmdbd instead of the stand-in for sacct.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from looprepro.config.cell import BudgetEvaluation, Cell, Execution, GroupWordsTask, LoopedTransformer, Training
from looprepro.config.identity import cell_id, evaluation_id
from looprepro.config.presence import Presence
from looprepro.launch.base import Progress, Work
from looprepro.launch.profile import Profile
from looprepro.launch.queue import Queue
from looprepro.launch.scheduler import Scheduler
from looprepro.launch.slurm import SlurmExecutor
from looprepro.store import Store
from looprepro.store.submissions import Submission, Submissions

SCRIPTS = Path(__file__).resolve().parents[2] / "slurm" / "test-cluster"


@dataclass(frozen=True)
class Cluster:
    """A running cluster: its state folder and the environment in which SLURM's commands find it."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment with the cluster's configuration and its stand-in for sacct."""
        path = f"{self.state / 'bin'}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.state / "etc" / "slurm.conf")}

    def run(self, *command: str) -> str:
        """The standard output of a SLURM command; CalledProcessError with its words where it fails."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def job(self, job: str) -> dict[str, str]:
        """What slurmctld itself says of a job or task: JobState, ExitCode, Restarts, ..."""
        line = self.run("scontrol", "--oneliner", "show", "job", job).splitlines()[0]
        return dict(word.split("=", 1) for word in line.split() if "=" in word)

    def wait_until(self, condition: Callable[[], bool], seconds: float, problem: Callable[[], str]) -> None:
        """Poll ``condition``; AssertionError with ``problem()`` after ``seconds``."""
        wait_until(condition, seconds, problem)

    def wait(self, job: str, *states: str, seconds: float = 60.0) -> dict[str, str]:
        """Wait until slurmctld gives a job one of ``states``."""
        wait_until(lambda: self.job(job)["JobState"] in states, seconds, lambda: f"job {job} is {self.job(job)['JobState']}")
        return self.job(job)


def wait_until(condition: Callable[[], bool], seconds: float, problem: Callable[[], str]) -> None:
    """Poll ``condition``; AssertionError with ``problem()`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds:g} s: {problem()}")
        time.sleep(0.1)


@contextmanager
def running_cluster(*options: str) -> Iterator[Cluster]:
    """A cluster with these options of up.sh; stopped and removed at the end, also after a failed start."""
    shared_memory = Path("/dev/shm")
    folder = shared_memory if os.access(shared_memory, os.W_OK) else None
    state = Path(tempfile.mkdtemp(prefix="slurm-", dir=folder))  # a short path: unix sockets take 80 characters
    try:
        up = subprocess.run([SCRIPTS / "up.sh", state, *options], capture_output=True, text=True, timeout=180, check=False)
        assert up.returncode == 0, up.stderr
        yield Cluster(state)
    finally:
        subprocess.run([SCRIPTS / "down.sh", state, "--purge"], capture_output=True, timeout=180, check=False)
        if state.exists():
            shutil.rmtree(state)


@pytest.fixture(scope="session")
def slurm_installed() -> None:
    """Skips where SLURM is not installed."""
    for command in ("slurmctld", "slurmd", "munged"):
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed: make test-slurm installs it")


@pytest.fixture(scope="session")
def start_cluster(slurm_installed: None) -> Callable[..., object]:
    """A context manager for a cluster with options of one's own, such as ``--max-array-size 11``."""
    return running_cluster


@pytest.fixture(scope="session")
def session_cluster(slurm_installed: None) -> Iterator[Cluster]:
    """The one cluster of the session."""
    with running_cluster("--acct", os.environ.get("LOOPREPRO_TEST_ACCT", "shim")) as cluster:
        yield cluster


@pytest.fixture
def cluster(session_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The session's cluster, in this process's environment; jobs that a test leaves are cancelled."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, session_cluster.environment[name])
    yield session_cluster
    session_cluster.run("scancel", "--quiet", f"--user={os.getuid()}")
    wait_until(lambda: not session_cluster.run("squeue", "--noheader"), 30, lambda: session_cluster.run("squeue", "--noheader"))


class Sweep:
    """Fake cells, packed into jobs of the real cluster, and the command that submits what is missing of them."""

    def __init__(self, cluster: Cluster, folder: Path, cells: int, steps: int, step_seconds: float, **profile: Any) -> None:
        launch_tests = Path(__file__).resolve().parents[1] / "launch"
        fake = {key: str(value) for key, value in profile.pop("fake", {}).items()}
        self.journal_path = folder / "journal"
        environment = {
            "PYTHONPATH": str(launch_tests),
            "FAKE_JOURNAL": str(self.journal_path),
            "FAKE_STEP_SECONDS": str(step_seconds),
            "FAKE_CHECKPOINT_EVERY": "5",
            **fake,
        }
        given = {"partition": "gpu", "gpus": 0, "memory": "300M", "time": "0:30:00", "signal_lead": 20, "poll_seconds": 1.0}
        self.profile = Profile(name="test", environment=environment, **{**given, "cells_per_job": 4, **profile})
        self.cluster = cluster
        self.store = Store(folder / "runs")
        self.work = [self._work(seed, steps) for seed in range(cells)]
        self.settings: dict[str, Any] = {"runner": "fake_training:run_cell", "beat_seconds": 0.1}
        self.said: list[str] = []

    @staticmethod
    def _work(seed: int, steps: int) -> Work:
        model = LoopedTransformer(width=32, heads=4)
        cell = Cell(task=GroupWordsTask(), model=model, training=Training(steps=steps), seed=seed)
        evaluation = BudgetEvaluation(T=8)
        named = ((evaluation_id(evaluation), evaluation.model_dump(mode="json")),)
        return Work(cell_id(cell), cell.model_dump(mode="json"), named, Execution(), steps)

    def command(self, **options: Any) -> Progress:
        """``looprepro sweep``, as another process would do it: its last progress."""
        tries = options.pop("tries", 3)
        executor = SlurmExecutor(
            self.profile, settings=self.settings, tries=tries, environment=self.cluster.environment, **options
        )
        progress: Progress | None = None
        for progress in executor.run(self.store, self.work):
            self.said += progress.messages
        assert progress is not None
        return progress

    def status(self) -> dict[str, Presence]:
        """``looprepro status``, by cell."""
        prefix = Submissions(self.store).prefix
        assert prefix is not None
        queue = Queue(self.store, Scheduler(prefix, environment=self.cluster.environment))
        queue.look()
        return {reading.id: queue.presence(reading) for reading in self.store.readings(item.id for item in self.work)}

    def statuses(self) -> list[str]:
        """Statuses of the cells, in their order."""
        return [presence.status for presence in self.status().values()]

    def causes(self) -> list[str]:
        """Causes of the cells, in their order."""
        return [presence.cause for presence in self.status().values()]

    def wait_for(self, *statuses: str, seconds: float = 60.0) -> None:
        """Until every cell has one of ``statuses``."""
        wait_until(lambda: set(self.statuses()) <= set(statuses), seconds, lambda: f"{self.status()}\n{self.logs()}")

    def wait_for_steps(self, step: int, seconds: float = 60.0) -> None:
        """Until every cell has done that many steps."""
        ids = [item.id for item in self.work]
        wait_until(
            lambda: all(one.step >= step for one in self.store.presence(ids).values()),
            seconds,
            lambda: f"{self.store.presence(ids)}\n{self.logs()}",
        )

    def jobs(self) -> list[str]:
        """Ids of the arrays, oldest first."""
        return [str(one.job) for one in self.submissions()]

    def submissions(self) -> list[Submission]:
        """All submissions, also those that are over."""
        submissions = Submissions(self.store)
        found = [submissions.read(path.name) for path in submissions.folder.iterdir() if not path.name.startswith(".")]
        return sorted(found, key=lambda one: (one.created, one.name))

    def logs(self) -> str:
        """What the jobs themselves said."""
        return "\n".join(path.read_text(errors="replace") for path in self.store.root.glob("submissions/*/logs/*"))

    def owner(self, cell: int) -> dict[str, Any]:
        """Who holds a cell's latest attempt."""
        highest = self.store.reading(self.work[cell].id).highest
        assert highest is not None
        return highest.owner

    def numbers(self) -> dict[str, Any]:
        """The metrics of every cell; KeyError where one has none."""
        return {
            reading.id: {name: one["metrics"] for name, one in reading.evaluations.items()}
            for reading in self.store.readings(item.id for item in self.work)
        }

    def finished(self) -> list[int]:
        """Seeds in the order in which their training was finished, once per time."""
        entries = [json.loads(line) for line in self.journal_path.read_text().splitlines()]
        return [entry["seed"] for entry in entries if entry["event"] == "finished"]


@pytest.fixture
def make_sweep(cluster: Cluster, tmp_path: Path) -> Callable[..., Sweep]:
    """``make_sweep(cells=, steps=, step_seconds=, fake={...}, **profile)``."""

    def make(cells: int = 4, steps: int = 40, step_seconds: float = 0.1, **profile: Any) -> Sweep:
        return Sweep(cluster, tmp_path, cells, steps, step_seconds, **profile)

    return make


@pytest.fixture
def make_sweep_on() -> type[Sweep]:
    """``make_sweep_on(cluster, folder, cells, steps, step_seconds, **profile)``: the same on a cluster of one's own."""
    return Sweep
