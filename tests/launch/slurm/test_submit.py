"""Submitting to a pretended cluster: no cell lost, none doubled, whatever breaks on the way."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.files.errors import SchedulerUnreachable
from looprepro.launch.scheduler import Scheduler, SubmissionUnclear
from looprepro.store.submissions import Submissions

# A fork stands for another process that dies; pytest-xdist has threads, which it does not need.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
MakeSweep = Callable[..., Any]
PROJECT = Path(__file__).resolve().parents[3]


def ids(sweep: Any) -> list[str]:
    return [item.id for item in sweep.work]


def test_a_command_submits_every_cell_once_and_returns(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(10, cells_per_job=4)
    progress = sweep.command()
    assert (progress.finished, progress.exit_code) == (True, 1)
    assert sweep.submitted() == ids(sweep)
    assert [len(job["tasks"]) for job in fake_cluster.jobs()] == [3]
    assert sweep.command().exit_code == 1
    assert len(fake_cluster.calls("sbatch")) == 1
    assert sweep.run_jobs() == [0, 0, 0]
    done = sweep.command()
    assert done.exit_code == 0
    assert len(done.complete) == 10


def test_two_thousand_cells_against_a_limit_of_1001_are_two_arrays_from_zero(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(2000, max_array_size=1001)
    assert sweep.command().exit_code == 1
    assert [list(job["tasks"]) for job in fake_cluster.jobs()] == [
        [str(index) for index in range(1001)],
        [str(index) for index in range(999)],
    ]
    assert Counter(sweep.submitted()) == Counter(ids(sweep))


def test_nothing_of_an_allocation_reaches_sbatch_but_the_configuration(
    fake_cluster, make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CPU_BIND", "SLURM_JOB_ID", "SBATCH_ACCOUNT", "SLURM_CONF"):
        monkeypatch.setenv(name, "x")
    make_sweep(1).command()
    assert fake_cluster.calls("sbatch")[0]["environment"] == {"SLURM_CONF": "x"}


def test_a_job_whose_answer_was_lost_is_adopted(fake_cluster, make_sweep: MakeSweep) -> None:
    fake_cluster.behave("sbatch", hang=30)
    sweep = make_sweep(3, submit_timeout=3.0)
    assert sweep.command().exit_code == 1
    assert len(fake_cluster.jobs()) == 1
    assert any("adopted" in line for line in sweep.said)
    assert sweep.command().exit_code == 1
    assert len(fake_cluster.jobs()) == 1


def test_an_unclear_submission_is_settled_by_the_next_command(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(3, submit_timeout=3.0)
    fake_cluster.behave("sbatch", hang=30)
    fake_cluster.behave("squeue", code=1, error="squeue: error: Unable to contact slurm controller")

    def expect_unclear() -> None:
        with pytest.raises(SubmissionUnclear) as caught:
            sweep.command()
        os._exit(caught.value.exit_code)

    assert sweep.in_another_process(expect_unclear) == 3
    assert sweep.command().exit_code == 1
    assert len(fake_cluster.jobs()) == 1
    assert any("adopted" in line for line in sweep.said)


def test_an_sbatch_that_blocks_is_given_up_and_the_cells_are_free_again(fake_cluster, make_sweep: MakeSweep) -> None:
    line = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    fake_cluster.behave("sbatch", error=line, sleep=30, act=False)
    sweep = make_sweep(3, submit_timeout=1.0)
    assert sweep.command().exit_code == 1
    assert any("temporarily unable" in said and "not submitted: 3 cells" in said for said in sweep.said)
    assert fake_cluster.jobs() == []
    assert sweep.command().exit_code == 1
    assert sweep.submitted() == ids(sweep)


def test_a_refused_array_is_named_beside_the_submitted_one(fake_cluster, make_sweep: MakeSweep) -> None:
    fake_cluster.behave("sbatch")
    fake_cluster.behave("sbatch", code=1, error="sbatch: error: Invalid qos specification")
    sweep = make_sweep(5, max_array_size=3)
    assert sweep.command().exit_code == 1
    assert any(line.startswith("submitted: 3 cells") for line in sweep.said)
    assert any(line.startswith("not submitted: 2 cells") and "Invalid qos" in line for line in sweep.said)
    sweep.command()
    assert Counter(sweep.submitted()) == Counter(ids(sweep))


def test_an_index_above_the_clusters_limit_is_refused_and_nothing_is_lost(fake_cluster, make_sweep: MakeSweep) -> None:
    fake_cluster.set_max_array_size(11)
    sweep = make_sweep(45)
    sweep.command()
    assert any("Invalid job array specification" in line for line in sweep.said)
    corrected = make_sweep(45, max_array_size=11)
    corrected.command()
    assert [len(job["tasks"]) for job in fake_cluster.jobs()] == [11, 11, 11, 11, 1]
    assert Counter(corrected.submitted()) == Counter(ids(corrected))


@pytest.mark.parametrize("moment", ["reserve", "keep_source", "create", "submit", "record_submitted"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_command_killed_at_any_step_neither_loses_nor_doubles_a_cell(
    fake_cluster, make_sweep: MakeSweep, moment: str, after: bool
) -> None:
    sweep = make_sweep(4)
    owner = Scheduler if moment == "submit" else Submissions
    real = getattr(owner, moment)

    def dies(*arguments: Any, **options: Any) -> Any:
        if after:
            real(*arguments, **options)
        os._exit(9)

    assert sweep.in_another_process(lambda: setattr(owner, moment, dies)) == 9
    sweep.later = 61.0
    sweep.command()
    assert Counter(sweep.submitted()) == Counter(ids(sweep))
    assert sweep.run_jobs() == [0] * len(fake_cluster.jobs()[0]["tasks"])
    assert sweep.command().exit_code == 0


def test_a_job_that_appears_after_its_submission_was_called_refused_does_nothing(
    fake_cluster, make_sweep: MakeSweep, journal
) -> None:
    sweep = make_sweep(2)
    sweep.command()
    (job,) = fake_cluster.jobs()
    Submissions(sweep.store).record_refused(job["name"], "never seen")
    assert sweep.run_job(job, "0") == 0
    assert journal() == []
    sweep.command()
    assert len(fake_cluster.jobs()) == 2


def test_commands_started_together_make_one_job_per_cell(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(12, cells_per_job=2)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 4
            try:
                code = sweep.command().exit_code
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [1] * 4
    assert Counter(sweep.submitted()) == Counter(ids(sweep))


def test_after_one_cell_of_ten_failed_only_that_one_is_submitted_again(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(10, cells_per_job=5)
    sweep.command()
    assert sweep.run_jobs(FAKE_RAISE="6") == [0, 1]
    before = _times(sweep, except_for=6)
    again = sweep.command()
    assert again.exit_code == 1
    assert sweep.submitted()[10:] == [sweep.work[6].id]
    assert sweep.run_jobs() == [0]
    assert sweep.command().exit_code == 0
    assert _times(sweep, except_for=6) == before


def _times(sweep: Any, except_for: int) -> dict[Path, int]:
    """Modification times of all files of all cells but one."""
    cells = [sweep.store.layout.cell(item.id) for number, item in enumerate(sweep.work) if number != except_for]
    return {path: path.stat().st_mtime_ns for cell in cells for path in cell.rglob("*") if path.is_file()}


@pytest.mark.parametrize("failure", ["CONFIG", "MEMORY"])
def test_a_failure_that_comes_again_is_submitted_again_only_on_request(
    fake_cluster, make_sweep: MakeSweep, failure: str
) -> None:
    sweep = make_sweep(2, cells_per_job=2)
    sweep.command()
    assert sweep.run_jobs(**{f"FAKE_{failure}": "1"}) == [1]
    assert [one.status for one in sweep.presence()] == ["done", "failed"]
    assert sweep.store.highest_attempts(ids(sweep)) == dict.fromkeys(ids(sweep), 1)  # not tried twice in the job either
    assert sweep.command().exit_code == 1
    assert len(fake_cluster.jobs()) == 1
    sweep.command(retry_failed=True)
    assert sweep.submitted()[2:] == [sweep.work[1].id]


def test_with_cells_in_the_queue_and_a_silent_scheduler_nothing_is_submitted(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(2)
    sweep.command()
    for command in ("squeue", "sacct"):
        fake_cluster.behave(command, code=1, error="Unable to contact slurm controller", forever=True)
    with pytest.raises(SchedulerUnreachable) as caught:
        sweep.command()
    assert caught.value.exit_code == 3
    assert len(fake_cluster.calls("sbatch")) == 1


def test_the_younger_of_two_jobs_of_one_name_is_cancelled(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(1)
    sweep.command()
    (job,) = fake_cluster.jobs()
    double = fake_cluster.add_job(job["name"], {"0": "PENDING"})
    sweep.command()
    assert [call["arguments"] for call in fake_cluster.calls("scancel")] == [[str(double)]]


def test_the_submitted_source_is_whole_and_read_only(make_sweep: MakeSweep) -> None:
    sweep = make_sweep(1)
    sweep.command()
    (source,) = (sweep.store.root / "sources").iterdir()
    assert (source / "looprepro" / "worker.py").read_bytes() == (PROJECT / "looprepro" / "worker.py").read_bytes()
    assert (source / "sweeps" / "table1.yaml").is_file()
    files = [path for path in source.rglob("*") if path.is_file()]
    assert not [path for path in files if path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)]
    assert not [path for path in files if path.suffix == ".pyc"]


def test_a_source_and_a_submission_are_on_the_disk_before_they_have_their_names(
    make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut leaves an empty submission.json, or half a source that is trusted for ever."""
    synced: set[str] = set()
    unsynced: dict[str, list[Path]] = {}
    fsync, rename = os.fsync, os.rename

    def noted(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def checked(source: Path, target: Path) -> None:
        unsynced[Path(target).parent.name] = [path for path in (source, *source.rglob("*")) if str(path) not in synced]
        rename(source, target)

    monkeypatch.setattr("looprepro.files.atomic.os.fsync", noted)
    monkeypatch.setattr("looprepro.files.atomic.os.rename", checked)
    sweep = make_sweep(1)
    sweep.command()
    assert (unsynced["sources"], unsynced["submissions"]) == ([], [])
    assert {str(sweep.store.root / name) for name in unsynced} <= synced
