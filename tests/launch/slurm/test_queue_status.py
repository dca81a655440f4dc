"""What is shown of a submitted cell: files first, and silence of the scheduler is never death."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from looprepro.cli.cancel import cancel
from looprepro.launch.base import Work
from looprepro.launch.queue import Queue
from looprepro.launch.queue_status import view_task
from looprepro.launch.scheduler_answers import Snapshot, parse_accounting, parse_queue
from looprepro.store.submissions import Submissions

MakeSweep = Callable[..., Any]


@pytest.fixture
def sweep(make_sweep: MakeSweep) -> Any:
    """Two cells in one submitted job."""
    made = make_sweep(2, cells_per_job=2)
    made.command()
    return made


def statuses(sweep: Any, queue: Queue | None = None) -> list[str]:
    return [one.status for one in sweep.presence(queue)]


def test_a_waiting_task_is_queued_and_a_running_one_without_a_sign_of_life_is_starting(fake_cluster, sweep: Any) -> None:
    assert statuses(sweep) == ["queued"] * 2
    fake_cluster.set_task(1, "0", state="RUNNING")
    assert [(one.status, one.cause) for one in sweep.presence()] == [("running", "starting")] * 2


@pytest.mark.parametrize(
    "word", ["BEWILDERED", "SPECIAL_EXIT", "REQUEUE_HOLD", "SUSPENDED", "COMPLETING", "PREEMPTED", "NODE_FAIL"]
)
def test_no_state_of_a_job_that_may_go_on_makes_a_cell_lost(fake_cluster, sweep: Any, word: str) -> None:
    fake_cluster.set_task(1, "0", state=word)
    assert set(statuses(sweep)) <= {"queued", "running"}
    sweep.later = 3600.0
    assert set(statuses(sweep)) <= {"queued", "running"}


def test_preempted_then_pending_is_queued_again(fake_cluster, sweep: Any) -> None:
    for word in ("PREEMPTED", "PENDING"):
        fake_cluster.set_task(1, "0", state=word)
        assert statuses(sweep) == ["queued"] * 2
    sweep.command()
    assert len(fake_cluster.jobs()) == 1


def test_preempted_and_then_in_no_list_is_lost_and_submitted_again(fake_cluster, sweep: Any) -> None:
    fake_cluster.set_task(1, "0", state="PREEMPTED")
    fake_cluster.behave("sacct", code=1, error="Slurm accounting storage is disabled", forever=True)
    sweep.later = 3600.0
    fake_cluster.set_task(1, "0", erased=True)
    queue = sweep.queue()
    assert statuses(sweep, queue) == ["queued"] * 2  # seen missing once
    queue.look()
    assert statuses(sweep, queue) == ["lost"] * 2
    sweep.command()
    assert len(fake_cluster.jobs()) == 2


def test_a_job_missing_from_every_list_just_after_its_submission_is_queued(fake_cluster, sweep: Any) -> None:
    fake_cluster.set_task(1, "0", state="RUNNING", erased=True)
    assert statuses(sweep) == ["queued"] * 2
    sweep.later = 3600.0
    assert statuses(sweep) == ["lost"] * 2  # sacct, which answers in full, does not know it either


@pytest.mark.parametrize("word", ["FAILED", "TIMEOUT", "OUT_OF_MEMORY"])
def test_a_job_that_never_began_a_cell_says_what_its_log_says(fake_cluster, sweep: Any, word: str) -> None:
    fake_cluster.set_task(1, "0", state=word, code="2:0")
    (submission,) = Submissions(sweep.store).open()
    (submission.path / "logs" / "1_0_0_log.err").write_text("module: command not found\nsrun: error: n1: task 0: Exited\n")
    presences = sweep.presence()
    assert [one.status for one in presences] == ["failed"] * 2
    assert presences[0].cause == f"its job did not start ({word}): module: command not found"


def test_completed_without_a_result_is_not_done(fake_cluster, sweep: Any) -> None:
    fake_cluster.set_task(1, "0", state="COMPLETED")
    assert statuses(sweep) == ["lost"] * 2


def test_a_result_is_done_whatever_the_scheduler_says(fake_cluster, sweep: Any) -> None:
    sweep.run_jobs()
    for word in ("FAILED", "RUNNING", "CANCELLED", "PENDING"):
        fake_cluster.set_task(1, "0", state=word)
        assert statuses(sweep) == ["done"] * 2


def test_a_failed_query_never_means_dead(fake_cluster, sweep: Any) -> None:
    queue = Queue(sweep.store, None)
    sweep.later = 3600.0
    assert statuses(sweep, queue) == ["queued"] * 2
    fake_cluster.behave("squeue", out="nonsense\n", forever=True)
    fake_cluster.behave("sacct", out="1_0|FAILED|1:0|of somebody else\n", forever=True)
    assert statuses(sweep) == ["queued"] * 2


def test_another_job_with_the_same_id_says_nothing_about_ours(sweep: Any) -> None:
    (submission,) = Submissions(sweep.store).open()
    queue = parse_queue("1_0|FAILED|256|0|None|looprepro-other-0|\n", "looprepro-")
    accounting = parse_accounting("1_0|COMPLETED|0:0|looprepro-other-0\n", "looprepro-")
    view = view_task(submission, 0, Snapshot(queue, accounting), None, submission.created + 10)
    assert (view.kind, view.record) == ("queued", None)


def test_a_cancelled_waiting_index_that_vanishes_is_remembered_as_cancelled(fake_cluster, sweep: Any) -> None:
    (submission,) = Submissions(sweep.store).open()
    Submissions(sweep.store).cancel(submission.name, [item.id for item in sweep.work])
    fake_cluster.set_task(1, "0", state="CANCELLED", erased=True)
    assert statuses(sweep) == ["cancelled"] * 2
    sweep.command()
    assert len(fake_cluster.jobs()) == 2


def test_a_cell_that_another_executor_runs_meanwhile_is_shown_as_its_files_say(fake_cluster, sweep: Any) -> None:
    item = sweep.work[0]
    sweep.store.register(item.id, item.config)
    attempt = sweep.store.claim(item.id)
    assert attempt
    for word in ("PENDING", "RUNNING", "COMPLETED"):
        fake_cluster.set_task(1, "0", state=word)
        assert statuses(sweep)[0] == "running"
    attempt.end("failed", "by hand", 0)
    assert sweep.presence()[0].cause == "by hand"


def test_looking_writes_nothing(fake_cluster, sweep: Any) -> None:
    def everything() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in Path(sweep.store.root).rglob("*")}

    before = everything()
    for word in ("RUNNING", "BEWILDERED", "FAILED", "CANCELLED"):
        fake_cluster.set_task(1, "0", state=word)
        sweep.presence()
    assert everything() == before


def test_a_look_asks_once_whatever_the_number_of_cells(fake_cluster, make_sweep: MakeSweep) -> None:
    sweep = make_sweep(300)
    sweep.command()
    calls = len(fake_cluster.calls())
    assert statuses(sweep) == ["queued"] * 300
    assert [call["command"] for call in fake_cluster.calls()[calls:]] == ["squeue"]


def test_what_is_over_is_never_asked_for_again(fake_cluster, sweep: Any) -> None:
    sweep.run_jobs()
    sweep.command()
    calls = len(fake_cluster.calls())
    assert statuses(sweep) == ["done"] * 2
    assert len(fake_cluster.calls()) == calls


@pytest.fixture
def measured_again(make_sweep: MakeSweep, make_work: Callable[..., list[Work]]) -> Any:
    """Two trained cells, submitted once more for a new measurement."""
    made = make_sweep(2, cells_per_job=2)
    made.command()
    made.run_jobs()
    made.command()
    new = make_work(2, budgets=(4, 64))
    assert [item.id for item in new] == [item.id for item in made.work]
    made.work = new
    assert made.command().exit_code == 1
    return made


def test_a_trained_cell_that_is_to_be_measured_is_queued_until_it_is(fake_cluster, measured_again: Any) -> None:
    assert [(one.status, one.cause) for one in measured_again.presence()] == [("queued", "to be measured")] * 2
    fake_cluster.set_task(2, "0", state="RUNNING")
    assert statuses(measured_again) == ["running"] * 2
    fake_cluster.set_task(2, "0", state="PENDING")
    measured_again.command()
    assert len(fake_cluster.jobs()) == 2
    measured_again.run_jobs()
    assert statuses(measured_again) == ["done"] * 2
    assert measured_again.command().exit_code == 0


def test_waiting_waits_for_measurements_too(fake_cluster, measured_again: Any) -> None:
    turns = []

    def turn(_: float) -> None:
        turns.append(len(turns))
        time.sleep(1.01)
        if len(turns) == 2:
            measured_again.run_jobs()

    assert measured_again.command(wait=True, sleep=turn).exit_code == 0
    assert len(turns) >= 2


def test_cells_that_were_submitted_again_can_be_cancelled(
    fake_cluster, measured_again: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fake_cluster.environment.items():
        monkeypatch.setenv(name, value)
    cancel(None, None, measured_again.store.root)
    assert [call["arguments"] for call in fake_cluster.calls("scancel")] == [["2"]]
    assert statuses(measured_again) == ["done"] * 2
    readings = measured_again.store.readings(item.id for item in measured_again.work)
    assert {measured_again.queue().holder(reading)[0] for reading in readings} == {""}


def test_a_failed_cell_that_was_submitted_again_is_queued_and_can_be_cancelled(
    fake_cluster, make_sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_sweep(1)
    made.command()
    made.run_jobs(FAKE_RAISE="0")
    assert statuses(made) == ["failed"]
    made.command()
    assert statuses(made) == ["queued"]
    for name, value in fake_cluster.environment.items():
        monkeypatch.setenv(name, value)
    cancel(None, None, made.store.root)
    assert statuses(made) == ["cancelled"]
