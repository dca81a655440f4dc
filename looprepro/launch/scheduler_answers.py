"""What squeue and sacct print, as frozen records. Pure text in, dataclasses out; what cannot be read is said, never guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Literal

QUEUE_FORMAT = "JobArrayID:|,State:|,exit_code:|,RestartCnt:|,Reason:|,Name:|"
"""squeue --Format: fields of any width, each followed by a bar. The name comes last: it alone may hold a bar."""
ACCOUNTING_FORMAT = "JobID,State,ExitCode,JobName"
"""sacct --format, for --parsable2."""


class State(StrEnum):
    """What a scheduler's state word means for a cell."""

    QUEUED = "queued"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Stopped from outside (preempted, node failure): the job may start again by itself, or never."""
    COMPLETED = "completed"
    """The process exited with 0. Whether a cell is done only its result file says."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """A word this table does not have: nothing is concluded from it."""

    @property
    def final(self) -> bool:
        """The scheduler will not run this job again."""
        return self in (State.COMPLETED, State.FAILED, State.CANCELLED)


_STATES = {
    State.QUEUED: "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    # COMPLETING: processes are still there. STOPPED and SUSPENDED keep theirs and go on later.
    State.RUNNING: "RUNNING COMPLETING CONFIGURING SIGNALING STAGE_OUT RESIZING SUSPENDED STOPPED POWER_UP_NODE UPDATE_DB",
    State.INTERRUPTED: "PREEMPTED NODE_FAIL BOOT_FAIL",
    State.COMPLETED: "COMPLETED",
    State.FAILED: "FAILED TIMEOUT OUT_OF_MEMORY DEADLINE LAUNCH_FAILED RECONFIG_FAIL",
    State.CANCELLED: "CANCELLED",
}
_STATE_OF_WORD = {word: state for state, words in _STATES.items() for word in words.split()}


def state_of(text: str) -> State:
    """``RUNNING`` -> running; ``CANCELLED by 0`` and sacct's ``CANCELLED+`` -> cancelled; a new word -> unknown."""
    words = text.split()
    return _STATE_OF_WORD.get(words[0].rstrip("+"), State.UNKNOWN) if words else State.UNKNOWN


@dataclass(frozen=True, slots=True)
class TaskIds:
    """Which tasks one line speaks of: a job without tasks, one task of an array, or many."""

    job: int
    ranges: tuple[range, ...] | None = None
    """Indices; None for a job that is no array."""
    truncated: bool = False
    """The list was cut short: further indices may belong to it."""

    @property
    def single(self) -> int | None:
        """The index where there is exactly one."""
        return self.ranges[0][0] if self.ranges and len(self.ranges) == 1 and len(self.ranges[0]) == 1 else None

    def __contains__(self, index: int) -> bool:
        return self.ranges is not None and any(index in one for one in self.ranges)


_JOB_ID = re.compile(r"(?P<job>\d+)(?:\+\d+)?(?:_(?:(?P<index>\d+)|\[(?P<list>[^\]]*)(?P<end>\]?)))?")
_TOKEN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def parse_task_ids(text: str) -> TaskIds:
    """``34``, ``34_5``, ``34_[0-4%2]``, ``34_[1,3-5]``, ``34_[0-118:2%120]``, ``34_[4-7,9,...%2]`` or ``34_[1,3,5`` (cut).

    ValueError for anything else. The last number of a cut list may be half a number and is dropped.
    """
    match = _JOB_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a job id: {text!r}")
    job = int(match["job"])
    if match["index"] is not None:
        return TaskIds(job, (range(int(match["index"]), int(match["index"]) + 1),))
    if match["list"] is None:
        return TaskIds(job)
    listed, dots, _ = match["list"].partition("...")
    truncated = bool(dots) or not match["end"]
    tokens = listed.partition("%")[0].split(",")
    if truncated:
        tokens = tokens[:-1]
    return TaskIds(job, tuple(_parse_range(token, text) for token in tokens), truncated)


def _parse_range(token: str, text: str) -> range:
    match = _TOKEN.fullmatch(token.strip())
    if match is None:
        raise ValueError(f"not a list of array indices: {text!r}")
    first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    if last < first or step < 1:
        raise ValueError(f"not a list of array indices: {text!r}")
    return range(first, last + 1, step)


@dataclass(frozen=True, slots=True)
class Exit:
    """How a job's process ended: its exit code, or the signal that killed it (0 for none)."""

    code: int
    signal: int


def _parse_exit(text: str) -> Exit | None:
    """``3:0`` (sacct), or the wait status that squeue prints (768 is exit code 3); None for ``N/A`` and the like."""
    code, colon, signal = text.strip().partition(":")
    if not code.isdecimal() or (colon and not signal.isdecimal()):
        return None
    return Exit(int(code), int(signal)) if colon else Exit(int(code) >> 8, int(code) & 127)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One line about a job or about tasks of an array that share a state."""

    tasks: TaskIds
    name: str
    source: Literal["queue", "accounting"]
    word: str
    """The state as the scheduler writes it."""
    state: State
    exit: Exit | None = None
    restarts: int | None = None
    reason: str = ""
    """Why a queued job waits (squeue only)."""
    cluster: str | None = None
    """From the header of a query over several clusters."""


@dataclass(frozen=True)
class Answer:
    """The records of one command whose names start with our prefix, and the lines that could not be read."""

    records: tuple[JobRecord, ...]
    unreadable: tuple[str, ...] = ()

    @property
    def trusted(self) -> bool:
        """Every line was understood: a job that is not listed is not there."""
        return not self.unreadable


def parse_queue(text: str, prefix: str) -> Answer:
    """The answer of ``squeue --noheader --Format=QUEUE_FORMAT``; ``prefix`` begins the names of our jobs."""
    lines, unreadable = _lines(text, prefix, fields=6)
    records = []
    for cluster, tasks, (_, word, code, restarts, reason, name) in lines:
        state = state_of(word)
        exit_ = _parse_exit(code) if state.final else None
        count = int(restarts) if restarts.isdecimal() else None
        records.append(JobRecord(tasks, name.removesuffix("|"), "queue", word, state, exit_, count, reason, cluster))
    return Answer(tuple(records), tuple(unreadable))


def parse_accounting(text: str, prefix: str) -> Answer:
    """The answer of ``sacct --noheader --parsable2 --format=ACCOUNTING_FORMAT``; ``prefix`` begins the names of our jobs."""
    lines, unreadable = _lines(text, prefix, fields=4)
    records = []
    for cluster, tasks, (_, word, code, name) in lines:
        state = state_of(word)
        exit_ = _parse_exit(code) if state.final else None
        records.append(JobRecord(tasks, name, "accounting", word, state, exit_, cluster=cluster))
    return Answer(tuple(records), tuple(unreadable))


_RECORD = re.compile(r"\d+(\+\d+)?(_(\d+|\[[^|]*))?(?P<step>\.\w+)?\|[A-Z_]+")
_CLUSTER = re.compile(r"CLUSTER: (\S+)")


def _lines(text: str, prefix: str, *, fields: int) -> tuple[list[tuple[str | None, TaskIds, list[str]]], list[str]]:
    """(cluster, tasks, fields) of each line about a job of ours, and the lines that cannot be read.

    Steps and other people's jobs are passed over. A line that is no record belongs to the name of the job above it where that
    is someone else's (names may hold line breaks; ours do not); anywhere else it is unreadable.
    """
    ours: list[tuple[str | None, TaskIds, list[str]]] = []
    unreadable: list[str] = []
    cluster: str | None = None
    foreign_above = False
    for line in text.split("\n"):
        if not line.strip():
            continue
        if header := _CLUSTER.fullmatch(line.strip()):
            cluster, foreign_above = header[1], False
            continue
        match = _RECORD.match(line)
        parts = line.split("|", fields - 1)
        if match is None or len(parts) != fields:
            if not foreign_above:
                unreadable.append(line)
            continue
        foreign_above = not parts[-1].startswith(prefix)
        if foreign_above or match["step"] is not None:
            continue
        try:
            ours.append((cluster, parse_task_ids(parts[0]), parts))
        except ValueError:
            unreadable.append(line)
    return ours, unreadable


_RANK = {State.RUNNING: 0, State.QUEUED: 1, State.UNKNOWN: 2, State.INTERRUPTED: 3}


def _order(record: JobRecord) -> tuple[int, int]:
    """Running before queued before ended; then the newest job."""
    return _RANK.get(record.state, 4), -record.tasks.job


class _Tasks:
    """Records of one answer by name and index. An array that waits is one line for thousands of indices and stays one here."""

    def __init__(self, answer: Answer | None) -> None:
        self._single: dict[tuple[str, int | None], JobRecord] = {}
        self._several: dict[str, list[JobRecord]] = {}
        for record in answer.records if answer else ():
            if record.tasks.ranges is not None and record.tasks.single is None:
                self._several.setdefault(record.name, []).append(record)
            else:
                key = (record.name, record.tasks.single)
                self._single[key] = min(record, self._single.get(key, record), key=_order)

    def exact(self, name: str, index: int | None) -> JobRecord | None:
        found = [record for record in self._several.get(name, ()) if index is not None and index in record.tasks]
        single = self._single.get((name, index))
        return min([*found, single] if single else found, key=_order, default=None)

    def possible(self, name: str) -> JobRecord | None:
        """A list of that name that was cut short, and so may hold any index that is listed nowhere."""
        return next((record for record in self._several.get(name, ()) if record.tasks.truncated), None)


@dataclass(frozen=True)
class Snapshot:
    """What the scheduler said of all our jobs at one moment.

    A task is looked up by its submission's unique *name*, never by a job id alone: a controller that crashed gives ids out
    again.
    """

    queue: Answer | None
    """None where squeue did not answer."""
    accounting: Answer | None = None
    """None where sacct was not asked, is not there, or did not answer."""

    @cached_property
    def _queued(self) -> _Tasks:
        return _Tasks(self.queue)

    @cached_property
    def _accounted(self) -> _Tasks:
        return _Tasks(self.accounting)

    def task(self, name: str, index: int | None = None) -> JobRecord | None:
        """The record of one task: the queue's, which is fresher, else accounting's (``record.source`` tells).

        None where the scheduler did not speak of it, which means something only if :attr:`queue_complete`.
        """
        exact = self._queued.exact(name, index) or self._accounted.exact(name, index)
        if exact is not None or index is None:
            return exact
        return self._queued.possible(name) or self._accounted.possible(name)

    def jobs(self, name: str) -> frozenset[int]:
        """Ids of the jobs of that name: more than one means that it was submitted twice."""
        answers = [answer for answer in (self.queue, self.accounting) if answer is not None]
        return frozenset(record.tasks.job for answer in answers for record in answer.records if record.name == name)

    @property
    def queue_complete(self) -> bool:
        """squeue's answer was understood line by line: a task that it does not list is neither queued nor running."""
        return self.queue is not None and self.queue.trusted
