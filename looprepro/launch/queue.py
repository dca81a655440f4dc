"""The submissions of one store and what the scheduler says of them, one question per refresh."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from looprepro.config.presence import Presence
from looprepro.files.errors import ConfigError, StoreError
from looprepro.launch.queue_status import YOUNG_SECONDS, TaskView, ended_words, presence_of, view_task
from looprepro.launch.scheduler import Scheduler
from looprepro.launch.scheduler_answers import Snapshot
from looprepro.store import Store
from looprepro.store.owner import Owner, is_dead
from looprepro.store.status import CellReading
from looprepro.store.submissions import Submission, Submissions, record_death

Say = Callable[[str], None]


@dataclass(frozen=True)
class Place:
    """Where a cell was submitted last."""

    submission: Submission
    index: int
    after: int


class Queue:
    """Reads submissions when made, and again at :meth:`refresh`; asks the scheduler only in :meth:`look`."""

    def __init__(self, store: Store, scheduler: Scheduler | None, *, now: Callable[[], float] = time.time) -> None:
        self.store = store
        self.scheduler = scheduler
        self.submissions = Submissions(store)
        self.snapshot: Snapshot | None = None
        self.earlier: Snapshot | None = None
        self._now = now
        self._views: dict[tuple[str, int], TaskView] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the files again."""
        self.broken: list[str] = []
        """A line per submission that cannot be read."""
        self.open = self.submissions.open(self.broken.append)
        self.places: dict[str, Place] = {}
        self._views = {}
        for submission in self.open:
            for cell, (index, after) in submission.places.items():
                self.places[cell] = Place(submission, index, after)

    def look(self, cells: Iterable[str] | None = None, *, thorough: bool = False) -> None:
        """Ask the scheduler once, where there is anything to ask. :class:`SchedulerUnreachable` where it does not answer.

        ``thorough``: also about submissions that have nothing left to do, so that :meth:`close` can mark them.
        """
        asked = [one for one in self.open if one.refused is None and (thorough or not self._has_ended(one))]
        if cells is not None:
            names = {self.places[cell].submission.name for cell in cells if cell in self.places}
            asked = [one for one in asked if one.name in names]
        if not asked or self.scheduler is None:
            return
        expected = [(one.name, index) for one in asked for index in range(len(one.jobs))]
        since = datetime.fromtimestamp(min(one.created for one in asked) - 3600)
        snapshot = self.scheduler.snapshot(expected, since)
        if snapshot is not self.snapshot:
            self.earlier, self.snapshot = self.snapshot, snapshot
            self._views = {}

    def _has_ended(self, submission: Submission) -> bool:
        return all(submission.ended(reading) for reading in self.store.readings(submission.places))

    def view(self, submission: Submission, index: int) -> TaskView:
        """One task as the last looks show it."""
        key = (submission.name, index)
        if key not in self._views:
            self._views[key] = view_task(submission, index, self.snapshot, self.earlier, self._now())
        return self._views[key]

    def presence(self, reading: CellReading) -> Presence:
        """A cell by its files and, where it was submitted, by the scheduler."""
        place = self.places.get(reading.id)
        if place is None:
            return reading.presence
        return presence_of(reading, place.submission, self.view(place.submission, place.index))

    def unclear(self, cells: Iterable[str]) -> bool:
        """Whether another look might tell more about some of ``cells``."""
        found = (self.places[cell] for cell in cells if cell in self.places)
        return any(
            (view := self.view(place.submission, place.index)).kind == "unknown"
            and (view.record is None or view.record.state == "interrupted")
            for place in found
        )

    def holder(self, reading: CellReading) -> tuple[str, int]:
        """(why the cell must not be submitted now, empty where it may be; the number of the reservation this is judged by).

        Who goes on from an empty answer reserves the next number: another command that did so in between has it already.
        """
        number, launch, owner = self.submissions.reservation(reading.id)
        return self._holder(reading, number, launch, owner), number

    def _holder(self, reading: CellReading, number: int, launch: str, owner: Owner | None) -> str:
        highest = reading.highest
        if number:
            mine, broken = self._of_launch(launch, reading.id)
            if mine is not None:
                why = self._held_by(reading, mine)
                if why:
                    return why
            elif broken:  # its job may wait or run: never a second one
                return f"perhaps submitted as {broken}, which cannot be read"
            elif owner is not None and not is_dead(owner, self._age(reading.id, number)):
                return f"being submitted by process {owner.pid} on {owner.host}"
        if highest is not None and highest.status == "running" and not self._is_known_over(reading):
            return f"running on {highest.owner.get('host', 'another machine')}"
        return ""

    def _held_by(self, reading: CellReading, submission: Submission) -> str:
        if submission.refused is not None or reading.id in submission.cancelled or submission.over:
            return ""
        if submission.ended(reading):
            return ""  # its job runs other cells and does not come back to this one
        view = self.view(submission, submission.places[reading.id][0])
        return "" if view.kind == "over" else f"{view.kind} as {submission.name}"

    def _of_launch(self, launch: str, cell: str) -> tuple[Submission | None, str]:
        """(the submission that a reservation led to, else the name of a broken one that it may have led to); looked up now,
        for it may be younger than our list of them."""
        try:
            names = [name for name in os.listdir(self.submissions.folder) if name.startswith(f"{launch}-")]
        except FileNotFoundError:
            return None, ""
        known = {one.name: one for one in self.open}
        broken = ""
        for name in names:
            try:
                one = known.get(name) or self.submissions.read(name)
            except (StoreError, ConfigError):
                if not self.submissions.is_over(name):
                    broken = name
                continue
            if cell in one.places:
                return one, ""
        return None, broken

    def _age(self, cell: str, number: int) -> float:
        try:
            return self._now() - self.store.layout.reservation(cell, number).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _is_known_over(self, reading: CellReading) -> bool:
        """Its latest attempt belongs to a task that the scheduler reports over."""
        place, highest = self.places.get(reading.id), reading.highest
        if place is None or highest is None:
            return False
        own = (highest.owner.get("slurm") or {}).get("SUBMISSION") == place.submission.name
        return own and self.view(place.submission, place.index).kind == "over"

    # Writing -----------------------------------------------------------------------------------------------------

    def settle(self, say: Say) -> None:
        """Find out about submissions whose command ended before it wrote sbatch's answer: adopt the job, or call it refused."""
        for one in self.open:
            if one.job is not None or one.refused is not None or not one.abandoned(self._now()) or self.scheduler is None:
                continue
            jobs = self.scheduler.find(one.name, datetime.fromtimestamp(one.created - 3600))
            if jobs:
                self.submissions.record_submitted(one.name, min(jobs), adopted=True)
                say(f"the job {min(jobs)} of an interrupted command is adopted ({one.name})")
            elif self._now() - one.created >= YOUNG_SECONDS:
                self.submissions.record_refused(one.name, "the command was interrupted before it reached the scheduler")
            else:
                say(f"{one.name} was interrupted while it was submitted; its cells are free in a minute")
        self.refresh()

    def drop_doubles(self, say: Say) -> None:
        """Cancel the younger of two jobs of one name: somebody's sbatch was repeated for us."""
        for one in self.open:
            jobs = sorted(self.snapshot.jobs(one.name)) if self.snapshot and self.scheduler else []
            if len(jobs) > 1 and self.scheduler is not None:
                say(f"{one.name} was submitted {len(jobs)} times: {', '.join(map(str, jobs[1:]))} cancelled")
                self.scheduler.cancel([str(job) for job in jobs[1:]])

    def bury(self, reading: CellReading) -> None:
        """Note beside a cell's attempt that it ended without a word, where the scheduler says that its job is over."""
        place, highest = self.places.get(reading.id), reading.highest
        if place is None or highest is None or highest.end is not None or highest.number <= place.after:
            return
        view = self.view(place.submission, place.index)
        if view.kind == "over":
            words = ended_words(place.submission, place.index, view, highest.number)
            record_death(
                self.store.layout.attempt(reading.id, highest.number), words.removeprefix(f"attempt {highest.number}: ")
            )

    def close(self) -> None:
        """Mark what is over, so that nobody asks for it again."""
        for one in self.open:
            if one.refused is None and one.job is None:
                continue
            if all(self.view(one, index).kind == "over" for index in range(len(one.jobs))):
                for cell in one.places:
                    self.bury(self.store.reading(cell))
                self.submissions.record_over(one.name)
