"""The pretended cluster of tests/launch/fakes as a fixture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.config.presence import Presence
from looprepro.launch.base import Progress, Work
from looprepro.launch.profile import Profile
from looprepro.launch.queue import Queue
from looprepro.launch.scheduler import Scheduler
from looprepro.launch.slurm import SlurmExecutor
from looprepro.store import Store
from looprepro.store.submissions import Submissions

FAKES = Path(__file__).resolve().parents[1] / "fakes"


class FakeCluster:
    """A folder of a pretended SLURM, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "behaviour").mkdir(parents=True)
        self.environment = {
            "PATH": f"{FAKES}:{os.environ['PATH']}",
            "FAKE_SLURM": str(folder),
            "FAKE_SLURM_PYTHON": sys.executable,
        }
        self._write({"next": 1, "max_array_size": 1001, "jobs": []})

    def behave(self, command: str, **behaviour: Any) -> None:
        """Add a behaviour for one coming call of ``command`` (or, with ``forever=True``, for all that follow)."""
        path = self.folder / "behaviour" / f"{command}.json"
        entries = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*entries, behaviour]))

    def calls(self, command: str | None = None) -> list[dict[str, Any]]:
        """Calls so far: command, arguments, SLURM variables of the environment."""
        path = self.folder / "calls.jsonl"
        made = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in made if command in (None, call["command"])]

    def jobs(self) -> list[dict[str, Any]]:
        """Jobs that sbatch made: id, name, script, tasks by index."""
        jobs: list[dict[str, Any]] = self._read()["jobs"]
        return jobs

    def add_job(self, name: str, states: dict[str, str], limit: int | None = None, **task: Any) -> int:
        """A job with the given state per index (``""`` for a job that is no array)."""
        cluster = self._read()
        job = cluster["next"]
        cluster["next"] += 1
        tasks = {index: {"state": state, "code": "0:0", **task} for index, state in states.items()}
        cluster["jobs"].append({"id": job, "name": name, "limit": limit, "script": "", "tasks": tasks})
        self._write(cluster)
        return int(job)

    def set_task(self, job: int, index: str, **task: Any) -> None:
        """Change a task: ``state``, ``code``, ``forgotten`` (by squeue), ``erased`` (by both)."""
        cluster = self._read()
        next(one for one in cluster["jobs"] if one["id"] == job)["tasks"][index].update(task)
        self._write(cluster)

    def set_max_array_size(self, size: int) -> None:
        """MaxArraySize of the pretended cluster."""
        self._write({**self._read(), "max_array_size": size})

    def _read(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return value

    def _write(self, cluster: dict[str, Any]) -> None:
        (self.folder / "cluster.json").write_text(json.dumps(cluster))


@pytest.fixture
def fake_cluster(tmp_path: Path) -> FakeCluster:
    """A pretended SLURM; give ``fake_cluster.environment`` to what should find it."""
    return FakeCluster(tmp_path / "fake cluster")


class FakeSweep:
    """Fake cells and the command that submits what is missing of them to the pretended cluster."""

    def __init__(self, cluster: FakeCluster, store: Store, work: list[Work], fake: dict[str, str], **profile: Any) -> None:
        given = {"partition": "gpu", "gpus": 0, "memory": "1G", "time": "1:00:00", "poll_seconds": 1.0, "submit_timeout": 30.0}
        self.profile = Profile(name="fake", **{**given, **profile})
        self.cluster, self.store, self.work, self.fake = cluster, store, work, fake
        self.said: list[str] = []
        self.later = 0.0
        """Seconds by which the command's clock is ahead."""

    def command(self, **options: Any) -> Progress:
        """``looprepro sweep``: its last progress."""
        executor = SlurmExecutor(
            self.profile,
            settings={"runner": "fake_training:run_cell", "source": "", **options.pop("settings", {})},
            environment={**os.environ, **self.cluster.environment},
            sleep=options.pop("sleep", lambda _: time.sleep(1.01)),  # the scheduler's answers are kept for the profile's second
            now=lambda: time.time() + self.later,
            **options,
        )
        progress: Progress | None = None
        for progress in executor.run(self.store, self.work):
            self.said += progress.messages
        assert progress is not None
        return progress

    def in_another_process(self, prepare: Callable[[], None] = lambda: None, **options: Any) -> int:
        """The same in a child process that is gone afterwards; ``prepare`` runs in it first. Its exit code (4: an error)."""
        pid = os.fork()
        if pid == 0:
            code = 4
            try:
                prepare()
                code = self.command(**options).exit_code
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def run_jobs(self, **fake: str) -> list[int]:
        """Run what waits at the pretended cluster as SLURM would, and tell it how it ended: the exit codes."""
        codes = []
        for job in self.cluster.jobs():
            for index, task in job["tasks"].items():
                if task["state"] == "PENDING":
                    code = self.run_job(job, index, **fake)
                    self.cluster.set_task(job["id"], index, state="COMPLETED" if code == 0 else "FAILED", code=f"{code}:0")
                    codes.append(code)
        return codes

    def run_job(self, job: dict[str, Any], index: str, **fake: str) -> int:
        """Run one task of a pretended job."""
        manifest = self.store.root / "submissions" / job["name"] / "manifests" / f"{index}.json"
        slurm = {"SLURM_JOB_ID": str(job["id"]), "SLURM_ARRAY_JOB_ID": str(job["id"]), "SLURM_ARRAY_TASK_ID": index}
        environment = {**os.environ, **self.cluster.environment, **self.fake, **slurm, "LOOPREPRO_SUBMISSION": job["name"]}
        command = [sys.executable, "-P", "-m", "looprepro.job", str(manifest)]
        return subprocess.run(command, env={**environment, **fake}, timeout=120, check=False).returncode

    def submitted(self) -> list[str]:
        """Cells of all jobs that sbatch made, one entry per time."""
        cells = []
        for job in self.cluster.jobs():
            submission = Submissions(self.store).read(job["name"])
            cells += [cell.id for index in job["tasks"] for cell in submission.jobs[int(index)]]
        return cells

    def queue(self) -> Queue:
        """What ``status`` looks at, asked."""
        prefix = Submissions(self.store).prefix
        assert prefix is not None
        environment = {**os.environ, **self.cluster.environment}
        queue = Queue(
            self.store, Scheduler(prefix, environment=environment, interval=0.0), now=lambda: time.time() + self.later
        )
        queue.look()
        return queue

    def presence(self, queue: Queue | None = None) -> list[Presence]:
        """Cells as ``status`` shows them."""
        asked = queue or self.queue()
        return [asked.presence(reading) for reading in self.store.readings(item.id for item in self.work)]


@pytest.fixture
def make_sweep(fake_cluster: FakeCluster, store: Store, make_work: Any, fake: dict[str, str]) -> Callable[..., FakeSweep]:
    """``make_sweep(cells, **profile)``."""

    def make(cells: int, **profile: Any) -> FakeSweep:
        return FakeSweep(fake_cluster, store, make_work(cells), fake, **profile)

    return make
