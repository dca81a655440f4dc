"""The pretended cluster of tests/launch/fakes as a fixture."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

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
