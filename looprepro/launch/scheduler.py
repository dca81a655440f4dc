"""Ask SLURM seldom, with a clean environment, and never take silence for an answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from looprepro.files.errors import LoopreproError, SchedulerUnreachable
from looprepro.launch.scheduler_answers import (
    ACCOUNTING_FORMAT,
    QUEUE_FORMAT,
    Answer,
    Snapshot,
    parse_accounting,
    parse_queue,
)

_INHERITED = re.compile(r"(SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SCANCEL|SCONTROL|SINFO)_")
_SACCT_PAUSE = 10
"""Refreshes for which a failing sacct is left alone."""
_TARGETS_PER_SCANCEL = 500
_REFUSALS = (
    "invalid",
    "violates",
    "permission denied",
    "can not be satisfied",
    "is not available",
    "more processors requested",
    "requested node configuration",
    "unable to open file",
)
"""Words of answers of sbatch that leave no doubt that there is no job."""


class SubmissionRefused(LoopreproError):
    """sbatch said no, or was given up, and the scheduler confirms that it has no such job."""


class SubmissionUnclear(SchedulerUnreachable):
    """sbatch did not answer and the scheduler cannot be asked: there may be a job or not. Keep the reservation, ask later."""


@dataclass(frozen=True)
class Submitted:
    """A job (an array) that the scheduler has."""

    job: int
    adopted: bool
    """sbatch's own answer was lost; the job was found by its name."""


@dataclass(frozen=True)
class _Reply:
    """How a command ended; ``code`` is None where it was not there or was given up."""

    code: int | None
    out: str = ""
    error: str = ""
    installed: bool = True

    @property
    def first_line(self) -> str:
        if not self.installed:
            return f"cannot be started: {self.error}"
        lines = [line.strip() for line in self.error.splitlines() if line.strip()]
        return lines[0] if lines else f"exit status {self.code}"


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what an allocation or a user's defaults would impose on SLURM commands and their jobs.

    An inherited SLURM_CPU_BIND pins a job to few cores, an SQUEUE_STATES hides jobs. SLURM_CONF stays: it says where the
    cluster is.
    """
    return {name: value for name, value in environment.items() if name == "SLURM_CONF" or not _INHERITED.match(name)}


class Scheduler:
    """All our jobs on one cluster: those of this user whose names begin with ``prefix``."""

    def __init__(
        self,
        prefix: str,
        *,
        interval: float = 30.0,
        timeout: float = 20.0,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda message: None,
    ) -> None:
        """``interval``: seconds for which an answer (also a failure) is kept; ``timeout``: seconds a query may take.

        ``say`` gets each warning once.
        """
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", prefix):
            raise ValueError(f"not a prefix of job names: {prefix!r}")
        self._prefix = prefix
        self._interval = interval
        self._timeout = timeout
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._clock = clock
        self._sleep = sleep
        self._say = say
        self._said: set[str] = set()
        self._user = str(os.getuid())
        self._asked_at: float | None = None
        self._kept: Snapshot | SchedulerUnreachable | None = None
        self._sacct_pause = 0
        self._sacct_exists = True

    def snapshot(self, expected: Iterable[tuple[str, int | None]] = (), since: datetime | None = None) -> Snapshot:
        """What the scheduler knows of all our jobs: one squeue and at most one sacct call, or the answer of ``interval`` ago.

        sacct is asked only where a task of ``expected`` (job name, array index) is not in the queue's answer, and looks back to
        ``since`` (local time; a week by default). :class:`SchedulerUnreachable` where neither answers.
        """
        now = self._clock()
        if self._kept is None or self._asked_at is None or now - self._asked_at >= self._interval:
            self._asked_at = now
            try:
                self._kept = self._ask(expected, since)
            except SchedulerUnreachable as error:
                self._kept = error
        if isinstance(self._kept, SchedulerUnreachable):
            raise self._kept
        return self._kept

    def submit(self, script: Path, name: str, *, timeout: float = 60.0, settle: float = 3.0) -> Submitted:
        """sbatch ``script``, whose job has the unique ``name`` (an array: one call). A lost answer never makes a second job.

        An sbatch that fails or does not answer in ``timeout`` seconds is followed by a look for ``name``, and by another one
        ``settle`` seconds later where the answer leaves room for doubt. :class:`SubmissionRefused`: there is no job.
        :class:`SubmissionUnclear`: nobody knows.
        """
        reply = self._run(["sbatch", "--parsable", str(Path(script).resolve())], timeout)
        if not reply.installed:
            raise SchedulerUnreachable(f"sbatch {reply.first_line}", "Submit from a login node; --dry-run works anywhere")
        answer = re.fullmatch(r"(\d+)(;[^\s;]+)?", reply.out.strip().rpartition("\n")[2])
        if reply.code in (0, None) and answer:
            return Submitted(int(answer[1]), adopted=False)
        text = reply.first_line if reply.code != 0 else f"its answer is not a job id: {reply.out.strip()[:80]!r}"
        refused = reply.code not in (0, None) and any(word in reply.error.lower() for word in _REFUSALS)
        for pause in (0.0,) if refused else (0.0, settle):
            if pause:
                self._sleep(pause)
            try:
                jobs = self.find(name)
            except SchedulerUnreachable as error:
                raise SubmissionUnclear(
                    f"sbatch: {text}; whether job {name} exists could not be asked", "Run the same command again later"
                ) from error
            if jobs:
                self._warn(f"sbatch: {text}; but the job {name} exists and is adopted")
                return Submitted(min(jobs), adopted=True)
        raise SubmissionRefused(
            f"not submitted: sbatch: {text}", "Correct the profile or wait, then run the same command again"
        )

    def find(self, name: str, since: datetime | None = None) -> frozenset[int]:
        """Ids of the jobs called ``name``, asked now. sacct is asked as well where the queue knows none and it is there.

        :class:`SchedulerUnreachable` where the queue cannot be read: then nothing is known.
        """
        reply = self._queue_reply(f"--name={name}")
        answer = parse_queue(reply.out, self._prefix) if reply.code == 0 else None
        jobs = Snapshot(answer).jobs(name)
        if not jobs:
            if answer is None or not answer.trusted:
                raise self._unreachable(reply if answer is None else _Reply(0, error="squeue's answer cannot be read"))
            jobs = Snapshot(None, self._ask_accounting(since, f"--name={name}")).jobs(name)
        return jobs

    def cancel(self, targets: Sequence[str]) -> None:
        """scancel jobs (``"34"``) or single tasks (``"34_5"``), in few calls. Those that are over already are no error.

        :class:`SchedulerUnreachable` where scancel is not there or does not answer.
        """
        for target in targets:
            if not re.fullmatch(r"\d+(_\d+)?", target):
                raise ValueError(f"not a job or task id: {target!r}")
        for start in range(0, len(targets), _TARGETS_PER_SCANCEL):
            reply = self._run(["scancel", *targets[start : start + _TARGETS_PER_SCANCEL]], self._timeout)
            over = ("invalid job id", "already completing or completed")
            errors = [line for line in reply.error.lower().splitlines() if not any(words in line for words in over)]
            if reply.code is None or (reply.code != 0 and (errors or not reply.error)):
                raise SchedulerUnreachable(
                    f"scancel: {reply.first_line}", "Nothing is known to be cancelled: run the command again"
                )

    def _ask(self, expected: Iterable[tuple[str, int | None]], since: datetime | None) -> Snapshot:
        reply = self._queue_reply()
        queue = parse_queue(reply.out, self._prefix) if reply.code == 0 else None
        if queue is not None and queue.unreadable:
            self._warn(f"squeue: {len(queue.unreadable)} lines cannot be read, the first is {queue.unreadable[0][:80]!r}")
            if not queue.records:
                reply, queue = _Reply(0, error="squeue's answer cannot be read"), None
        elif queue is None:
            self._warn(f"squeue: {reply.first_line}; states come from sacct and from files")
        snapshot = Snapshot(queue)
        if queue is not None and all(snapshot.task(name, index) is not None for name, index in expected):
            return snapshot
        accounting = self._ask_accounting(since)
        if queue is None and accounting is None:
            raise self._unreachable(reply)
        return Snapshot(queue, accounting)

    def _queue_reply(self, *options: str) -> _Reply:
        # SLURM_BITSTR_LEN=0: lists of waiting indices are not cut short
        command = ["squeue", "--noheader", "--states=all", f"--user={self._user}", f"--Format={QUEUE_FORMAT}", *options]
        return self._run(command, self._timeout, SLURM_BITSTR_LEN="0")

    def _ask_accounting(self, since: datetime | None, *options: str) -> Answer | None:
        """sacct's answer; None, said once, where accounting is switched off, missing or failing."""
        if not self._sacct_exists:
            return None
        if self._sacct_pause > 0:
            self._sacct_pause -= 1
            return None
        start = since.strftime("%Y-%m-%dT%H:%M:%S") if since else "now-7days"
        command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--user={self._user}", f"--starttime={start}"]
        reply = self._run([*command, f"--format={ACCOUNTING_FORMAT}", *options], self._timeout, SLURM_BITSTR_LEN="0")
        answer = parse_accounting(reply.out, self._prefix) if reply.code == 0 else None
        if answer is not None and (answer.trusted or answer.records):
            return answer
        text = reply.first_line if answer is None else f"its answer cannot be read: {answer.unreadable[0][:80]!r}"
        self._sacct_exists = reply.installed and "accounting storage is disabled" not in reply.error.lower()
        self._sacct_pause = _SACCT_PAUSE
        self._warn(f"sacct: {text}; how jobs ended is read from squeue and from files")
        return None

    def _unreachable(self, reply: _Reply) -> SchedulerUnreachable:
        return SchedulerUnreachable(
            f"the scheduler does not answer: squeue: {reply.first_line}", "Nothing is concluded about its jobs: try again later"
        )

    def _warn(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self._say(message)

    def _run(self, command: Sequence[str], timeout: float, **variables: str) -> _Reply:
        """Run ``command`` (no shell) and wait ``timeout`` seconds; then it and what it started are killed."""
        try:
            process = subprocess.Popen(
                command,
                env={**self._environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            return _Reply(None, error=error.strerror or str(error), installed=False)
        try:
            out, error_text = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, error_text = process.communicate()
            said = error_text.strip().splitlines()
            return _Reply(None, out, f"no answer in {timeout:g} s" + (f" ({said[0].strip()})" if said else ""))
        except BaseException:  # an interrupt must not leave a command behind
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return _Reply(process.returncode, out, error_text)
