"""Run cells as job arrays of SLURM: submit and return, or wait. The same call again submits only what is missing.

Order is everything: reservation, then the folder with all that a job needs, then sbatch, then its answer. Killed between
any two of these, the next call knows from the files what was reached (:mod:`looprepro.launch.queue`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from looprepro.files.errors import ConfigError, SchedulerUnreachable
from looprepro.launch.arrays import split_into_arrays
from looprepro.launch.base import Progress, Watch, Work, manifest_of, units_of
from looprepro.launch.batch_script import batch_script, check_path
from looprepro.launch.profile import Profile
from looprepro.launch.queue import Queue
from looprepro.launch.queue_status import OVER_MEMORY
from looprepro.launch.scheduler import Scheduler, SubmissionRefused, SubmissionUnclear
from looprepro.launch.source_snapshot import Source, read_source
from looprepro.store import Store
from looprepro.store.status import CellReading
from looprepro.store.submissions import JobCell, Submissions, new_launch

_ENDED = ("failed", "lost", "cancelled", "planned")


@dataclass(frozen=True)
class Array:
    """One sbatch to be: its jobs, each with its cells."""

    profile: Profile
    threads: int
    jobs: list[list[Work]]

    @property
    def cells(self) -> int:
        """Cells of all jobs."""
        return sum(map(len, self.jobs))


def arrays_of(work: Sequence[Work], profile: Profile) -> list[Array]:
    """Work as arrays within the cluster's limits. Threads are fixed when a process starts: one number per job. A cell with
    several ranks has its job to itself. :class:`ConfigError` where the profile's jobs have no place for them."""
    arrays = []
    for (threads, ranks), group in groupby(sorted(work, key=_resources), key=_resources):
        items, own = list(group), profile.of(ranks)
        _check_ranks(ranks, items, own)
        cells = own.cells_per_job if ranks == 1 else 1
        split = split_into_arrays(units_of(items), cells_per_job=cells, max_array_size=own.max_array_size)
        arrays += [Array(own, threads, [[item for unit in job for item in unit] for job in jobs]) for jobs in split]
    return arrays


def _resources(item: Work) -> tuple[int, int]:
    return item.execution.threads, item.execution.ranks


def _check_ranks(ranks: int, items: Sequence[Work], profile: Profile) -> None:
    tasks = profile.nodes * profile.tasks
    if tasks > 1 and ranks != tasks:
        raise ConfigError(
            f"profile {profile.name} starts {tasks} tasks a job, and cells such as {items[0].id} have {ranks} ranks",
            "Use a profile whose nodes times tasks is the cells' ranks, or one with tasks: 1",
        )
    here = ranks if tasks == 1 else profile.tasks
    if any(item.execution.device != "cpu" for item in items) and here > max(profile.gpus, 1):
        raise ConfigError(
            f"cells such as {items[0].id} want {here} GPUs of a node, and profile {profile.name} asks for {profile.gpus}",
            "Use a profile with more gpus (slurm/h100x8.yaml), or name one as its several_ranks",
        )


def planned_scripts(store: Store, work: Sequence[Work], profile: Profile) -> list[str]:
    """The exact batch scripts that ``work`` would be submitted with. Writes nothing, asks no scheduler."""
    submissions = Submissions(store)
    source = read_source(_operators(work))
    launch = new_launch(submissions.prefix or "looprepro-00000000-")
    return [_script(submissions, source, f"{launch}-{number}", array) for number, array in enumerate(arrays_of(work, profile))]


def _operators(work: Sequence[Work]) -> set[str]:
    """Users' own operators among the cells. A reasoner's injection may be null."""
    injections = [item.config.get("model", {}).get("injection") or {} for item in work]
    return {method for method in (str(injection.get("method", "")) for injection in injections) if ":" in method}


def _script(submissions: Submissions, source: Source, name: str, array: Array) -> str:
    return batch_script(
        array.profile,
        name=name,
        folder=submissions.folder / name,
        source=submissions.sources / source.short,
        jobs=len(array.jobs),
        threads=array.threads,
    )


@dataclass
class SlurmExecutor:
    """Submits what is missing. ``wait``: stay until every cell has ended; leaving then (Ctrl-C) leaves the jobs alone."""

    profile: Profile
    wait: bool = False
    retry_failed: bool = False
    """Submit cells again whose failure the same command would meet again (configuration, import, too little memory)."""
    max_hours: float | None = None
    """Submit nothing where the cells that would be submitted now are estimated to take more device hours."""
    hours: Mapping[str, float | None] = field(default_factory=dict)
    """Estimated device hours by cell."""
    tries: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Added to the manifests (tests)."""
    environment: Mapping[str, str] | None = None
    """Of sbatch and its jobs instead of this process's (tests)."""
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    _messages: list[str] = field(default_factory=list)

    def run(self, store: Store, work: Sequence[Work]) -> Iterator[Progress]:
        """See :class:`looprepro.launch.base.Executor`. :class:`SchedulerUnreachable` where nothing can be concluded."""
        check_path(store.root)
        store.verify((item.id, item.config) for item in work)
        if not len(Watch(store, work).look().complete) < len(work):
            yield replace(Watch(store, work).look(), finished=True)
            return
        scheduler = Scheduler(
            Submissions(store).ensure_prefix(),
            interval=self.profile.poll_seconds,
            environment=self.environment,
            say=self._messages.append,
            sleep=self.sleep,
        )
        queue = Queue(store, scheduler, now=self.now)
        self._messages += queue.broken
        queue.settle(self._messages.append)
        ids = [item.id for item in work]
        queue.look(ids, thorough=True)
        if queue.unclear(ids):
            self.sleep(self.profile.poll_seconds)
            queue.look(ids, thorough=True)
        queue.drop_doubles(self._messages.append)
        queue.close()
        todo = self._choose(store, queue, work)
        self._refuse_above_limit([item.id for item, _ in todo])
        code = self._submit(queue, scheduler, todo)
        queue.refresh()
        progress = self._progress(store, queue, work)
        while self.wait and not self._settled(store, queue, progress):
            yield progress
            self.sleep(self.profile.poll_seconds)
            queue.refresh()
            try:
                queue.look(ids, thorough=True)
            except SchedulerUnreachable as error:
                self._say_once(str(error))
            progress = self._progress(store, queue, work)
        if self.wait:
            queue.close()
        complete = len(progress.complete) == len(progress.presence)
        yield replace(progress, finished=True, exit_code=code or (0 if complete else 1))

    def _refuse_above_limit(self, todo: Sequence[str]) -> None:
        hours = [self.hours.get(cell) for cell in todo]
        total = None if None in hours else sum(one for one in hours if one is not None)
        if self.max_hours is not None and todo and (total is None or total > self.max_hours):
            said = "an unknown number of" if total is None else f"about {total:.3g}"
            raise ConfigError(
                f"submitting {len(todo)} cells would take {said} device hours, more than --max-hours {self.max_hours:g}",
                "Nothing is submitted: narrow it with --only or --seeds, or raise the limit",
            )

    def _choose(self, store: Store, queue: Queue, work: Sequence[Work]) -> list[tuple[Work, int]]:
        """Cells that are missing, that nobody holds, and for which trying again makes sense; each with its last reservation."""
        complete = Watch(store, work).look().complete
        todo: list[tuple[Work, int]] = []
        held, hopeless = Counter[str](), 0
        for item in work:
            if item.id in complete:
                continue
            reading = store.reading(item.id)
            why, number = queue.holder(reading)
            if why:
                held[why] += 1
            elif not self.retry_failed and is_hopeless(reading):
                hopeless += 1
            else:
                queue.bury(reading)
                todo.append((item, number))
        self._messages += [f"{count} cells are {why}" for why, count in held.most_common(5)]
        if hopeless:
            self._messages.append(
                f"{hopeless} cells failed in a way that comes again (status names the causes): --retry-failed submits them"
            )
        return todo

    def _submit(self, queue: Queue, scheduler: Scheduler, todo: Sequence[tuple[Work, int]]) -> int:
        """Reserve, write, sbatch; 0, or 1 where some of it was refused."""
        if not todo:
            return 0
        submissions = queue.submissions
        for item, _ in todo:
            queue.store.register(item.id, item.config)
        launch = submissions.new_launch()
        mine = [item for item, number in todo if submissions.reserve(item.id, number + 1, launch)]
        if len(mine) < len(todo):
            self._messages.append(f"{len(todo) - len(mine)} cells were just submitted by another command")
        if not mine:
            return 0
        source = read_source(_operators(mine))
        submissions.keep_source(source.short, source.write)
        after = queue.store.highest_attempts(item.id for item in mine)
        arrays = [(f"{launch}-{number}", array) for number, array in enumerate(arrays_of(mine, self.profile))]
        scripts = {name: self._write(submissions, source, name, array, after) for name, array in arrays}
        return self._hand_over(submissions, scheduler, arrays, scripts)

    def _write(self, submissions: Submissions, source: Source, name: str, array: Array, after: Mapping[str, int]) -> Path:
        settings = {
            "wait": True,
            "tries": self.tries,
            "requeue": array.profile.requeue,
            "submission": str(submissions.folder / name),
            "source": source.hash,
            **self.settings,
        }
        return submissions.create(
            name,
            profile=array.profile.name,
            poll_seconds=array.profile.poll_seconds,
            requeue=array.profile.requeue,
            source=source.hash,
            jobs=[[JobCell(item.id, after[item.id]) for item in job] for job in array.jobs],
            manifests=[manifest_of(submissions.store, job, after, **settings) for job in array.jobs],
            script=_script(submissions, source, name, array),
        )

    def _hand_over(
        self, submissions: Submissions, scheduler: Scheduler, arrays: Sequence[tuple[str, Array]], scripts: Mapping[str, Path]
    ) -> int:
        code = 0
        problem: SchedulerUnreachable | None = None
        for name, array in arrays:
            if problem is not None:
                submissions.record_refused(name, "an earlier array could not be submitted")
                continue
            what = f"{array.cells} cells in {len(array.jobs)} jobs"
            try:
                answer = scheduler.submit(scripts[name], name, timeout=array.profile.submit_timeout)
            except SubmissionRefused as error:
                submissions.record_refused(name, error.message)
                self._messages.append(f"not submitted: {what}: {error}")
                code = 1
            except SubmissionUnclear as error:
                problem = error  # whether there is a job, the next command finds out
            except SchedulerUnreachable as error:
                submissions.record_refused(name, error.message)
                problem = error
            else:
                submissions.record_submitted(name, answer.job, adopted=answer.adopted)
                self._messages.append(f"submitted: {what} as array {answer.job} ({name})")
        if problem is not None:
            raise type(problem)("; ".join([*self._messages, problem.message]), problem.remedy)
        return code

    def _progress(self, store: Store, queue: Queue, work: Sequence[Work]) -> Progress:
        presence, complete = {}, set()
        for item in work:
            reading = store.reading(item.id)
            presence[item.id] = queue.presence(reading)
            if reading.presence.complete(name for name, _ in item.evaluations):
                complete.add(item.id)
        messages, self._messages[:] = tuple(self._messages), []
        return Progress(presence, frozenset(complete), messages)

    def _settled(self, store: Store, queue: Queue, progress: Progress) -> bool:
        """Whether nothing is to come. A trained cell that lacks a measurement may be submitted for it."""
        return all(
            name in progress.complete
            or known.status in _ENDED
            or (known.status == "done" and not queue.holder(store.reading(name))[0])
            for name, known in progress.presence.items()
        )

    def _say_once(self, line: str) -> None:
        if line not in self._messages:
            self._messages.append(line)


def is_hopeless(reading: CellReading) -> bool:
    """Whether the latest attempt ended in a way that the same command would meet again."""
    highest = reading.highest
    if highest is None:
        return False
    if highest.end is not None:
        return highest.status == "failed" and bool(highest.end.get("deterministic"))
    return highest.status == "lost" and highest.step == 0 and OVER_MEMORY in highest.cause
