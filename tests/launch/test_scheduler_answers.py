"""Reading squeue and sacct: texts as real clusters print them, and texts that no reader should trust."""

from __future__ import annotations

import pytest

from looprepro.launch.scheduler_answers import (
    Exit,
    Snapshot,
    State,
    TaskIds,
    parse_accounting,
    parse_queue,
    parse_task_ids,
    state_of,
)

OURS = "looprepro-ab12-"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("34", TaskIds(34)),
        ("34_5", TaskIds(34, (range(5, 6),))),
        ("34_[0-4%2]", TaskIds(34, (range(0, 5),))),
        ("34_[1,3-5]", TaskIds(34, (range(1, 2), range(3, 6)))),
        ("34_[7]", TaskIds(34, (range(7, 8),))),
        ("34_[0-118:2%120]", TaskIds(34, (range(0, 119, 2),))),
        ("34_[2-10:4,20%1]", TaskIds(34, (range(2, 11, 4), range(20, 21)))),
        ("2_[4-7,9-11,...%120]", TaskIds(2, (range(4, 8), range(9, 12)), truncated=True)),
        ("2_[4-7,9-1...]", TaskIds(2, (range(4, 8),), truncated=True)),
        # squeue --Format cuts the text itself: 27 may be 270
        (
            "14_[1,3,5,15-19,23,25,27",
            TaskIds(14, (range(1, 2), range(3, 4), range(5, 6), range(15, 20), range(23, 24), range(25, 26)), truncated=True),
        ),
    ],
)
def test_task_ids_are_read(text: str, expected: TaskIds) -> None:
    assert parse_task_ids(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "34_", "34_[]", "34_[a]", "34_[5-2]", "34_[0-9:0]", "34_[1,,2]", "-3", "34 35", "34_[N/A]"]
)
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_task_ids(text)


def test_a_range_of_a_billion_indices_takes_no_memory() -> None:
    assert 999_999_998 in parse_task_ids("1_[0-999999999:2]")


@pytest.mark.parametrize(
    ("word", "state", "final"),
    [
        ("PENDING", State.QUEUED, False),
        ("REQUEUED", State.QUEUED, False),
        ("REQUEUE_HOLD", State.QUEUED, False),
        ("RUNNING", State.RUNNING, False),
        ("COMPLETING", State.RUNNING, False),
        ("SIGNALING", State.RUNNING, False),
        ("SUSPENDED", State.RUNNING, False),
        ("PREEMPTED", State.INTERRUPTED, False),
        ("NODE_FAIL", State.INTERRUPTED, False),
        ("COMPLETED", State.COMPLETED, True),
        ("FAILED", State.FAILED, True),
        ("TIMEOUT", State.FAILED, True),
        ("OUT_OF_MEMORY", State.FAILED, True),
        ("CANCELLED", State.CANCELLED, True),
        ("CANCELLED by 1000", State.CANCELLED, True),
        ("CANCELLED+", State.CANCELLED, True),
        ("QUANTUM", State.UNKNOWN, False),
        ("", State.UNKNOWN, False),
    ],
)
def test_states_mean_what_slurm_means(word: str, state: State, final: bool) -> None:
    assert state_of(word) is state
    assert state.final is final


QUEUE = f"""\
7_[3-9%2]|PENDING|0|0|(Resources)|{OURS}a|
7_2|RUNNING|0|1|None|{OURS}a|
7_1|FAILED|768|0|NonZeroExitCode|{OURS}a|
7_0|FAILED|9|0|RaisedSignal:9(Killed)|{OURS}a|
8|COMPLETED|0|0|None|{OURS}b|
9_[0-4%1]|PENDING|0|0|Priority|someone's; $(job) | with bars|
"""


def test_the_queue_is_read_by_name_and_index() -> None:
    snapshot = Snapshot(parse_queue(QUEUE, OURS))
    words = {index: record.word for index in range(10) if (record := snapshot.task(f"{OURS}a", index))}
    assert words == {0: "FAILED", 1: "FAILED", 2: "RUNNING", **dict.fromkeys(range(3, 10), "PENDING")}
    first, second, third = (snapshot.task(f"{OURS}a", index) for index in (0, 1, 2))
    assert first
    assert first.exit == Exit(0, 9)
    assert second
    assert second.exit == Exit(3, 0)
    assert third
    assert third.restarts == 1
    assert third.exit is None
    assert snapshot.task(f"{OURS}a", 10) is None
    assert snapshot.jobs(f"{OURS}b") == {8}
    assert snapshot.queue_complete


def test_other_peoples_jobs_are_not_read() -> None:
    answer = parse_queue(QUEUE, OURS)
    assert {record.name for record in answer.records} == {f"{OURS}a", f"{OURS}b"}


def test_a_foreign_name_with_line_breaks_and_bars_disturbs_nothing() -> None:
    text = f"5|RUNNING|0|0|None|evil\nname|with\n\nbreaks|\n8|RUNNING|0|0|None|{OURS}b|\n"
    answer = parse_queue(text, OURS)
    assert [record.tasks.job for record in answer.records] == [8]
    assert answer.trusted


@pytest.mark.parametrize(
    "text",
    [
        "<html>busy</html>\n",
        f"8|RUNNING|0|0|None|{OURS}b|\nslurm_load_jobs error\n",
        f"8_[x]|RUNNING|0|0|None|{OURS}b|\n",
        "8|RUNN",
    ],
)
def test_a_line_that_is_no_record_takes_the_trust_from_the_answer(text: str) -> None:
    answer = parse_queue(text, OURS)
    assert len(answer.unreadable) == 1
    assert not Snapshot(answer).queue_complete


def test_headers_of_several_clusters_are_passed_over_and_remembered() -> None:
    text = f"CLUSTER: red\n8|RUNNING|0|0|None|{OURS}b|\n\nCLUSTER: blue\n8|PENDING|0|0|None|{OURS}c|\n"
    answer = parse_queue(text, OURS)
    assert answer.trusted
    assert [(record.cluster, record.name[-1]) for record in answer.records] == [("red", "b"), ("blue", "c")]


ACCOUNTING = f"""\
7_0|NODE_FAIL|1:0|{OURS}a
7_1|FAILED|137:0|{OURS}a
7_1.batch|FAILED|137:0|batch
7_2|CANCELLED by 0|0:15|{OURS}a
7_[3-118:2%120]|PENDING|0:0|{OURS}a
6|COMPLETED|0:0|somebody|else
"""


def test_accounting_is_read_without_steps_and_strangers() -> None:
    answer = parse_accounting(ACCOUNTING, OURS)
    assert [(record.tasks.single, record.state) for record in answer.records] == [
        (0, State.INTERRUPTED),
        (1, State.FAILED),
        (2, State.CANCELLED),
        (None, State.QUEUED),
    ]
    assert answer.records[1].exit == Exit(137, 0)
    assert answer.trusted


def test_the_queue_knows_better_than_accounting() -> None:
    queue = parse_queue(f"7_0|PENDING|0|1|BeginTime|{OURS}a|\n7_3|COMPLETED|0|0|None|{OURS}a|\n", OURS)
    snapshot = Snapshot(queue, parse_accounting(ACCOUNTING, OURS))
    rerun, ended, only_accounted = (snapshot.task(f"{OURS}a", index) for index in (0, 3, 5))
    assert rerun
    assert (rerun.state, rerun.source) == (State.QUEUED, "queue")
    assert ended
    assert (ended.state, ended.source) == (State.COMPLETED, "queue")
    assert only_accounted
    assert (only_accounted.state, only_accounted.source) == (State.QUEUED, "accounting")


def test_a_list_cut_short_may_hold_what_is_listed_nowhere() -> None:
    snapshot = Snapshot(parse_queue(f"7_[3-5,...%2]|PENDING|0|0|None|{OURS}a|\n7_0|RUNNING|0|0|None|{OURS}a|\n", OURS))
    listed, unlisted = snapshot.task(f"{OURS}a", 0), snapshot.task(f"{OURS}a", 99)
    assert listed
    assert listed.state is State.RUNNING
    assert unlisted
    assert unlisted.state is State.QUEUED


def test_a_job_id_given_out_twice_does_not_mix_two_submissions() -> None:
    snapshot = Snapshot(parse_queue(f"71|RUNNING|0|0|None|{OURS}new|\n", OURS))
    assert snapshot.task(f"{OURS}old") is None


def test_of_two_jobs_with_one_name_the_running_one_counts_and_both_are_told() -> None:
    snapshot = Snapshot(parse_queue(f"70_0|RUNNING|0|0|None|{OURS}a|\n71_0|COMPLETED|0|0|None|{OURS}a|\n", OURS))
    record = snapshot.task(f"{OURS}a", 0)
    assert record
    assert record.tasks.job == 70
    assert snapshot.jobs(f"{OURS}a") == {70, 71}


def test_without_a_queue_absence_means_nothing() -> None:
    assert not Snapshot(None, parse_accounting(ACCOUNTING, OURS)).queue_complete
