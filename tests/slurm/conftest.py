"""The real one-node cluster of slurm/test-cluster, started once for the session and always stopped.

``LOOPREPRO_TEST_ACCT=dbd`` runs the tests with slurmdbd instead of the stand-in for sacct.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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
