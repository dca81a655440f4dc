"""Asking a pretended scheduler that is slow, refuses, loses its answers or talks nonsense."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from looprepro.files.errors import SchedulerUnreachable
from looprepro.launch.scheduler import Scheduler, SubmissionRefused, SubmissionUnclear, clean_environment
from looprepro.launch.scheduler_answers import State

OURS = "looprepro-ab12-"
NAME = f"{OURS}first"


class Clock:
    """A clock that a test moves; sleeping on it takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Desk:
    """A scheduler over the pretended cluster, its clock, and what it said."""

    def __init__(self, fake_cluster, timeout: float = 20.0, **environment: str) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.scheduler = Scheduler(
            OURS,
            timeout=timeout,
            environment={**fake_cluster.environment, **environment},
            clock=self.clock,
            sleep=self.clock.sleep,
            say=self.said.append,
        )


@pytest.fixture
def desk(fake_cluster) -> Desk:
    return Desk(fake_cluster)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "-a job's; $(id) script.sh"
    path.write_text(f"#!/bin/sh\n#SBATCH --job-name={NAME}\n#SBATCH --array=0-2%2\ntrue\n")
    return path


def test_one_refresh_is_one_squeue_and_one_sacct_call_whatever_the_number_of_tasks(fake_cluster, desk: Desk) -> None:
    fake_cluster.add_job(NAME, {str(index): "RUNNING" for index in range(500)})
    gone = fake_cluster.add_job(f"{OURS}gone", {"": "FAILED"}, forgotten=True)
    snapshot = desk.scheduler.snapshot([(NAME, index) for index in range(500)] + [(f"{OURS}gone", None)])
    record = snapshot.task(f"{OURS}gone")
    assert record
    assert (record.state, record.source, record.tasks.job) == (State.FAILED, "accounting", gone)
    assert [call["command"] for call in fake_cluster.calls()] == ["squeue", "sacct"]


def test_sacct_is_not_asked_where_the_queue_knows_all(fake_cluster, desk: Desk) -> None:
    fake_cluster.add_job(NAME, {"0": "RUNNING", "1": "PENDING", "2": "PENDING"}, limit=1)
    snapshot = desk.scheduler.snapshot([(NAME, 0), (NAME, 1), (NAME, 2)])
    assert snapshot.queue_complete
    assert [call["command"] for call in fake_cluster.calls()] == ["squeue"]


def test_within_the_interval_nothing_is_asked_again(fake_cluster, desk: Desk) -> None:
    first = desk.scheduler.snapshot()
    desk.clock.now += 29.9
    assert desk.scheduler.snapshot() is first
    desk.clock.now += 0.1
    assert desk.scheduler.snapshot() is not first
    assert len(fake_cluster.calls()) == 2


def test_a_failure_is_kept_for_the_interval_as_well(fake_cluster, desk: Desk) -> None:
    for command in ("squeue", "sacct"):
        fake_cluster.behave(command, code=1, error=f"{command}: error: Unable to contact slurm controller")
    for _ in range(3):
        with pytest.raises(SchedulerUnreachable, match=r"Unable to contact slurm controller.*Nothing is concluded"):
            desk.scheduler.snapshot()
    assert len(fake_cluster.calls()) == 2
    desk.clock.now += 30
    assert desk.scheduler.snapshot().queue_complete


@pytest.mark.parametrize("error", ["Slurm accounting storage is disabled", "sacct: error: Problem talking to the database"])
def test_a_failing_sacct_is_told_once_and_the_queue_goes_on(fake_cluster, desk: Desk, error: str) -> None:
    fake_cluster.add_job(f"{OURS}other", {"": "RUNNING"})
    fake_cluster.behave("sacct", code=1, error=error, forever=True)
    for _ in range(4):
        snapshot = desk.scheduler.snapshot([(NAME, 0)])
        assert snapshot.task(NAME, 0) is None
        assert snapshot.task(f"{OURS}other")
        desk.clock.now += 30
    assert [message.split(";")[0] for message in desk.said] == [f"sacct: {error}"]
    assert len(fake_cluster.calls("sacct")) == 1


def test_a_sacct_that_failed_is_asked_again_later_but_a_disabled_one_is_not(fake_cluster) -> None:
    for error, calls in (("sacct: error: Problem talking to the database", 2), ("Slurm accounting storage is disabled", 3)):
        desk = Desk(fake_cluster)
        fake_cluster.behave("sacct", code=1, error=error)
        for _ in range(12):
            desk.scheduler.snapshot([(NAME, 0)])
            desk.clock.now += 30
        assert len(fake_cluster.calls("sacct")) == calls


def test_a_missing_sacct_is_told_once(fake_cluster, tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    commands.mkdir()
    (commands / "squeue").write_text("#!/bin/sh\n")
    (commands / "squeue").chmod(0o755)
    desk = Desk(fake_cluster, PATH=str(commands))
    for _ in range(3):
        assert desk.scheduler.snapshot([(NAME, 0)]).queue_complete
        desk.clock.now += 30
    assert len(desk.said) == 1
    assert "sacct: cannot be started" in desk.said[0]


def test_without_any_slurm_the_scheduler_is_unreachable(fake_cluster, tmp_path: Path) -> None:
    desk = Desk(fake_cluster, PATH=str(tmp_path))
    with pytest.raises(SchedulerUnreachable, match="squeue: cannot be started") as caught:
        desk.scheduler.snapshot()
    assert caught.value.exit_code == 3


def test_a_slow_squeue_is_given_up_and_accounting_answers(fake_cluster) -> None:
    desk = Desk(fake_cluster, timeout=0.5)
    fake_cluster.add_job(NAME, {"0": "RUNNING"})
    fake_cluster.behave("squeue", sleep=30)
    started = time.monotonic()
    snapshot = desk.scheduler.snapshot([(NAME, 0)])
    record = snapshot.task(NAME, 0)
    assert record
    assert record.source == "accounting"
    assert not snapshot.queue_complete
    assert "squeue: no answer in 0.5 s" in desk.said[0]
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("garbage", ["<html>503</html>\n", "\x00\x01\n", "JOBID STATE\n"])
def test_garbage_from_both_is_no_answer(fake_cluster, desk: Desk, garbage: str) -> None:
    fake_cluster.behave("squeue", out=garbage)
    fake_cluster.behave("sacct", out=garbage)
    with pytest.raises(SchedulerUnreachable, match="cannot be read"):
        desk.scheduler.snapshot()


def test_commands_get_no_slurm_variables_but_the_configuration(fake_cluster, script: Path) -> None:
    inherited = {
        "SLURM_CPU_BIND": "mask",
        "SBATCH_PARTITION": "x",
        "SALLOC_QOS": "x",
        "SRUN_DEBUG": "1",
        "SQUEUE_STATES": "PD",
        "SLURM_CONF": "/c",
    }
    desk = Desk(fake_cluster, **inherited)
    desk.scheduler.submit(script, NAME)
    desk.scheduler.snapshot()
    by_command = {call["command"]: call["environment"] for call in fake_cluster.calls()}
    assert by_command == {"sbatch": {"SLURM_CONF": "/c"}, "squeue": {"SLURM_CONF": "/c", "SLURM_BITSTR_LEN": "0"}}


def test_a_clean_environment_keeps_everything_else() -> None:
    kept = {"PATH": "/bin", "SLURM_CONF": "/c", "MY_SLURM_X": "1", "CUDA_VISIBLE_DEVICES": "0"}
    assert clean_environment({**kept, "SLURM_JOB_ID": "1", "SBATCH_EXPORT": "NONE", "SALLOC_X": "", "SRUN_Y": ""}) == kept


def test_a_submission_is_one_call_with_a_hostile_path(fake_cluster, desk: Desk, script: Path) -> None:
    submitted = desk.scheduler.submit(script, NAME)
    assert (submitted.job, submitted.adopted) == (1, False)
    assert [job["script"] for job in fake_cluster.jobs()] == [script.read_text()]
    assert len(fake_cluster.calls()) == 1


def test_a_job_whose_answer_was_lost_is_adopted_and_not_submitted_again(fake_cluster, desk: Desk, script: Path) -> None:
    fake_cluster.behave("sbatch", hang=30)
    submitted = desk.scheduler.submit(script, NAME, timeout=0.5)
    assert (submitted.job, submitted.adopted) == (1, True)
    assert len(fake_cluster.jobs()) == 1
    assert "adopted" in desk.said[0]


def test_an_error_after_the_job_was_made_is_adopted_as_well(fake_cluster, desk: Desk, script: Path) -> None:
    fake_cluster.behave(
        "sbatch", act=True, code=1, out="", error="sbatch: error: Batch job submission failed: Socket timed out"
    )
    assert desk.scheduler.submit(script, NAME).adopted


def test_an_answer_of_garbage_is_looked_up(fake_cluster, desk: Desk, script: Path) -> None:
    fake_cluster.behave("sbatch", out="Welcome to the cluster!\n")
    assert desk.scheduler.submit(script, NAME).adopted
    fake_cluster.behave("sbatch", out="1\nSubmitted with love\n", act=False)
    with pytest.raises(SubmissionRefused, match="not a job id"):
        desk.scheduler.submit(script, f"{OURS}second")


def test_a_job_that_was_lost_and_ended_is_found_through_accounting(fake_cluster, desk: Desk) -> None:
    job = fake_cluster.add_job(NAME, {"0": "COMPLETED"}, forgotten=True)
    assert desk.scheduler.find(NAME) == {job}
    assert desk.scheduler.find(f"{OURS}never") == frozenset()


def test_a_refusal_names_the_reason_and_is_looked_up_once(fake_cluster, desk: Desk, script: Path) -> None:
    fake_cluster.set_max_array_size(2)
    with pytest.raises(SubmissionRefused, match="Invalid job array specification"):
        desk.scheduler.submit(script, NAME)
    assert len(fake_cluster.calls("squeue")) == 1


def test_an_sbatch_that_blocks_is_given_up_with_its_own_words(fake_cluster, desk: Desk, script: Path) -> None:
    words = "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying"
    fake_cluster.behave("sbatch", sleep=30, error=words)
    with pytest.raises(SubmissionRefused, match=r"no answer in 0.5 s .*temporarily unable to accept job") as caught:
        desk.scheduler.submit(script, NAME, timeout=0.5)
    assert caught.value.exit_code == 1
    assert len(fake_cluster.calls("squeue")) == 2  # at once and after a pause: the request may still be under way
    assert fake_cluster.jobs() == []


def test_where_nobody_can_be_asked_a_submission_stays_unclear(fake_cluster, desk: Desk, script: Path) -> None:
    fake_cluster.behave("sbatch", hang=30)
    fake_cluster.behave("squeue", code=1, error="Unable to contact slurm controller")
    with pytest.raises(SubmissionUnclear, match="could not be asked"):
        desk.scheduler.submit(script, NAME, timeout=4.0)  # long enough for a busy machine to have registered the job
    assert desk.scheduler.find(NAME) == {1}


def test_without_sbatch_submitting_is_unreachable(fake_cluster, tmp_path: Path, script: Path) -> None:
    with pytest.raises(SchedulerUnreachable, match="sbatch cannot be started"):
        Desk(fake_cluster, PATH=str(tmp_path / "nowhere")).scheduler.submit(script, NAME)


def test_cancelling_takes_few_calls_and_forgives_what_is_over(fake_cluster, desk: Desk) -> None:
    job = fake_cluster.add_job(NAME, {str(index): "PENDING" for index in range(1200)})
    desk.scheduler.cancel([f"{job}_{index}" for index in range(1200)] + ["999"])
    assert len(fake_cluster.calls("scancel")) == 3
    assert {task["state"] for task in fake_cluster.jobs()[0]["tasks"].values()} == {"CANCELLED"}


def test_a_cancelled_waiting_index_vanishes_from_every_list(fake_cluster, desk: Desk) -> None:
    job = fake_cluster.add_job(NAME, {"0": "PENDING", "1": "PENDING"})
    desk.scheduler.cancel([f"{job}_1"])
    snapshot = desk.scheduler.snapshot([(NAME, 0), (NAME, 1)])
    assert snapshot.task(NAME, 0)
    assert snapshot.task(NAME, 1) is None
    assert snapshot.queue_complete


def test_a_scancel_without_answer_is_not_taken_for_success(fake_cluster, desk: Desk) -> None:
    fake_cluster.behave("scancel", code=1, error="scancel: error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(SchedulerUnreachable, match="Nothing is known to be cancelled"):
        desk.scheduler.cancel(["1"])


@pytest.mark.parametrize("target", ["--user=root", "1;id", "", "1_2_3", "all"])
def test_only_ids_are_cancelled(desk: Desk, target: str) -> None:
    with pytest.raises(ValueError, match="not a job or task id"):
        desk.scheduler.cancel([target])
