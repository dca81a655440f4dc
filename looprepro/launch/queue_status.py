"""What became of a submitted cell: its files first, the scheduler second. Pure, and never takes silence for death."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from looprepro.config.presence import Presence
from looprepro.launch.scheduler_answers import JobRecord, Snapshot, State
from looprepro.store.status import CellReading
from looprepro.store.submissions import Submission

Kind = Literal["submitting", "queued", "running", "over", "unknown"]
YOUNG_SECONDS = 60.0
"""A job submitted less than this ago may be missing from every list."""
OVER_MEMORY = "over its memory limit"
_MEMORY_WORDS = ("exceeded memory limit", "oom-kill", "oom_kill", "out of memory")
_TAIL_BYTES = 8192


@dataclass(frozen=True)
class TaskView:
    """One array task as the scheduler tells it."""

    kind: Kind
    record: JobRecord | None = None
    absent: bool = False
    """Over because no list has it any more."""
    why: str = ""


def view_task(submission: Submission, index: int, snapshot: Snapshot | None, earlier: Snapshot | None, now: float) -> TaskView:
    """Judge a task from one or two snapshots, taken apart in time. A task is gone only where both of them, or sacct, say so."""
    if submission.refused is not None:
        return TaskView("over", why=f"not submitted: {submission.refused}")
    young = now - submission.created < YOUNG_SECONDS
    if snapshot is None and young and submission.job is not None:
        return TaskView("queued", why="just submitted")
    if snapshot is None:
        return TaskView("unknown", why="the scheduler was not asked")
    record = snapshot.task(submission.name, index)
    if record is not None and record.state.final:
        return TaskView("over", record)
    if record is not None and record.state is State.QUEUED:
        return TaskView("queued", record, why=record.reason if record.reason != "None" else "")
    if record is not None and record.state is State.RUNNING:
        return TaskView("running", record)
    if record is not None and record.state is State.UNKNOWN:
        return TaskView("unknown", record, why=f"the scheduler says {record.word}")
    if record is not None and record.source == "queue" and not submission.requeue:
        return TaskView("over", record)
    # Interrupted (it may start again by itself, or never), or in no list.
    if not snapshot.queue_complete:
        return TaskView("unknown", record, why="the queue cannot be read in full")
    if submission.job is None:
        return TaskView("submitting")
    if young and not _cancelled_whole(submission, index):
        return TaskView("queued", record, why="not listed yet" if record is None else record.word)
    confirmed = _missing_in(earlier, submission, index) or (
        record is None and snapshot.accounting is not None and snapshot.accounting.trusted
    )
    if confirmed or _cancelled_whole(submission, index):
        return TaskView("over", record, absent=True)
    return TaskView("unknown", record, why="not in the queue; asked again later")


def _missing_in(earlier: Snapshot | None, submission: Submission, index: int) -> bool:
    if earlier is None or not earlier.queue_complete:
        return False
    record = earlier.task(submission.name, index)
    return record is None or record.state is State.INTERRUPTED


def _cancelled_whole(submission: Submission, index: int) -> bool:
    return all(cell.id in submission.cancelled for cell in submission.jobs[index])


def presence_of(reading: CellReading, submission: Submission, view: TaskView) -> Presence:
    """A cell of ``submission`` as it stands, with the cause in one line."""
    files = reading.presence
    index, after = submission.places[reading.id]
    highest = reading.highest
    begun = highest if highest is not None and highest.number > after else None
    if files.status == "diverged" or submission.ended(reading):
        return files
    if files.status == "done":  # trained, and submitted for a measurement
        if reading.id in submission.cancelled or view.kind in ("over", "unknown"):
            return files
        return replace(files, status="running" if view.kind == "running" else "queued", cause="to be measured")
    own = begun is not None and (begun.owner.get("slurm") or {}).get("SUBMISSION") == submission.name
    if begun and not own and (files.status == "running" or view.kind == "over"):
        return files  # another executor has taken it meanwhile
    alive = files.status == "running" and view.kind != "over"
    if reading.id in submission.cancelled:
        return replace(files, status="running" if alive else "cancelled", cause="being cancelled" if alive else "cancelled")
    stopped = f"attempt {begun.number} stopped at step {begun.step}" if begun else ""
    match view.kind:
        case "submitting":
            return replace(files, status="queued", cause="being submitted")
        case "queued":
            cause = f"{stopped}, requeued" if begun else view.why
            return replace(files, status="queued", cause=cause)
        case "running":
            if files.status == "running":
                return files
            return replace(files, status="running", cause=f"{stopped}, starting again" if begun else "starting")
        case "unknown":
            if files.status in ("running", "failed") and begun:
                return files
            return replace(files, status="queued", cause=f"last known; {view.why}")
    return _over(reading, submission, index, view, started=begun is not None)


def _over(reading: CellReading, submission: Submission, index: int, view: TaskView, *, started: bool) -> Presence:
    files, highest = reading.presence, reading.highest
    word = view.record.word if view.record else ""
    if view.record is not None and view.record.state is State.CANCELLED:
        step = f" at step {files.step}" if files.step else ""
        return replace(files, status="cancelled", cause=f"its job was cancelled{step}")
    if submission.refused is not None:
        return replace(files, cause=files.cause or view.why)
    if started and highest is not None:
        if highest.status == "interrupted":
            return files
        cause = files.cause if highest.status == "lost" and "without a word" not in files.cause else ""
        return replace(files, status="lost", cause=cause or ended_words(submission, index, view, highest.number))
    if word and view.record and view.record.state is not State.COMPLETED:
        said = last_words(submission, index)
        return replace(files, status="failed", cause=f"its job did not start ({word})" + (f": {said}" if said else ""))
    return replace(
        files, status="lost", cause="its job is over and never began it" if word else "its job is in no list any more"
    )


def ended_words(submission: Submission, index: int, view: TaskView, attempt: int) -> str:
    """How an attempt ended that wrote no end itself, as the scheduler and the job's log tell it; one line."""
    said = last_words(submission, index)
    if any(sign in said.lower() for sign in _MEMORY_WORDS) or (view.record and view.record.word == "OUT_OF_MEMORY"):
        return f"attempt {attempt}: its job was killed because it was {OVER_MEMORY}" + (f" ({said})" if said else "")
    if view.record is None:
        return f"attempt {attempt}: its job is in no list any more"
    code = view.record.exit
    how = f", exit code {code.code}" if code and code.code else f", signal {code.signal}" if code and code.signal else ""
    return f"attempt {attempt}: its job ended as {view.record.word}{how}" + (f": {said}" if said else "")


def last_words(submission: Submission, index: int) -> str:
    """The line of the job's own log that says most: about memory, else the last one."""
    lines: list[str] = []
    for path in submission.log_files(index):
        try:
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                lines += [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        except OSError:
            continue
    for line in reversed(lines):
        if any(sign in line.lower() for sign in _MEMORY_WORDS):
            return line
    own = [line for line in lines if not line.startswith(("srun:", "slurmstepd"))]
    return (own or lines)[-1] if lines else ""
