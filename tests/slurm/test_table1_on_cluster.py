"""The command line on the real cluster: the same numbers as the local executor, and the code as it was when submitted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm
PROJECT = Path(__file__).resolve().parents[2]
SWEEP = ("table1", "--scale", "smoke", "--seeds", "0", "--only", "group=A5")


def looprepro(*arguments: str, project: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    """The command line of the code in ``project``."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "looprepro", *arguments],
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def evaluations(runs: Path) -> dict[str, Any]:
    """Metrics and series of every evaluation, by cell and file."""
    found = {}
    for path in runs.glob("cells/*/evaluations/*.json"):
        document = json.loads(path.read_text())
        found[str(path.relative_to(runs))] = {key: document[key] for key in ("metrics", "series")}
    return found


def weights(runs: Path) -> dict[str, bytes]:
    """The bytes of every cell's final weights."""
    found = {}
    for path in runs.glob("cells/*/result.json"):
        folder = path.parent / json.loads(path.read_text())["weights"]
        found |= {f"{path.parent.name}/{file.name}": file.read_bytes() for file in folder.glob("*.safetensors")}
    return found


def test_the_numbers_are_those_of_the_local_executor_bit_for_bit(cluster, tmp_path: Path) -> None:
    submitted = tmp_path / "runs; $(touch hacked) & more"
    slurm = looprepro("sweep", *SWEEP, "--executor", "slurm", "--profile", "test", "--runs", str(submitted))
    assert slurm.returncode == 1, slurm.stderr
    assert "submitted: 5 cells in 2 jobs" in slurm.stderr
    local = looprepro("sweep", *SWEEP, "--runs", str(tmp_path / "local"))
    assert local.returncode == 0, local.stderr
    waited = looprepro("sweep", *SWEEP, "--executor", "slurm", "--profile", "test", "--wait", "--runs", str(submitted))
    assert waited.returncode == 0, waited.stderr
    assert len(evaluations(submitted)) == 15
    assert evaluations(submitted) == evaluations(tmp_path / "local")
    assert weights(submitted) == weights(tmp_path / "local")
    assert "5/5 cells complete" in looprepro("status", *SWEEP, "--runs", str(submitted)).stdout
    assert not list(tmp_path.rglob("hacked")) + list(PROJECT.glob("hacked"))


def test_a_queued_job_runs_the_code_as_it_was_when_submitted(cluster, tmp_path: Path) -> None:
    project, runs = tmp_path / "project", tmp_path / "runs"
    for name in ("looprepro", "sweeps", "slurm"):
        shutil.copytree(PROJECT / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "test-cluster"))
    shutil.copy(PROJECT / "pyproject.toml", project)
    cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    try:
        one = ("table1", "--scale", "smoke", "--seeds", "0", "--only", "group=A5", "--only", "method=diagonal")
        options = ("--executor", "slurm", "--profile", "test", "--runs", str(runs))
        first = looprepro("sweep", *one, *options, project=project)
        assert "submitted: 1 cells" in first.stderr, first.stderr
        waiting = json.loads(looprepro("status", *one, "--runs", str(runs), "--json", project=project).stdout)
        assert waiting["sweeps"][0]["status"] == {"queued": 1}
        for file in ("training/run.py", "worker.py", "job.py"):
            (project / "looprepro" / file).write_text("raise SystemExit('edited while queued')\n")
    finally:
        cluster.run("scontrol", "update", "nodename=n1", "state=resume")
    (submission,) = runs.glob("submissions/*/submission.json")
    job = json.loads((submission.parent / "submitted.json").read_text())["job"]
    cluster.wait(f"{job}_0", "COMPLETED")
    (provenance,) = runs.glob("cells/*/attempts/0001/provenance.json")
    hash_ = json.loads(submission.read_text())["source"]
    assert json.loads(provenance.read_text())["source"] == hash_
    assert (
        runs / "sources" / hash_[:16] / "looprepro" / "worker.py"
    ).read_text() != "raise SystemExit('edited while queued')\n"
    assert len(list(runs.glob("cells/*/result.json"))) == 1


def test_cancelling_one_cell_of_a_job_leaves_the_others_and_a_sweep_submits_it_again(cluster, make_sweep) -> None:
    sweep = make_sweep(steps=60)
    sweep.command()
    sweep.wait_for_steps(5)
    runs = str(sweep.store.root)
    cancelled = looprepro("cancel", sweep.work[1].id, "--runs", runs)
    assert cancelled.returncode == 0, cancelled.stderr
    cluster.wait(f"{sweep.jobs()[0]}_0", "COMPLETED")
    assert sweep.statuses() == ["done", "cancelled", "done", "done"]
    assert sweep.command(wait=True).exit_code == 0
    assert sorted(sweep.finished()) == [0, 1, 2, 3]
    log = looprepro("logs", sweep.work[1].id, "--runs", runs)
    assert "training seed 1" in log.stdout


def test_cancelling_everything_ends_what_runs_and_what_waits(cluster, make_sweep) -> None:
    sweep = make_sweep(cells=8, steps=300, cpus=2)
    sweep.command()
    cluster.wait(f"{sweep.jobs()[0]}_0", "RUNNING")
    assert looprepro("cancel", "--runs", str(sweep.store.root)).returncode == 0
    cluster.wait(f"{sweep.jobs()[0]}_0", "CANCELLED")
    sweep.wait_for("cancelled", seconds=20)
    assert sweep.command().exit_code == 1
    assert len(sweep.jobs()) == 2
