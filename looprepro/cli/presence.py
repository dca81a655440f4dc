"""What is known of the wanted cells: the store first, then the scheduler, then archived rows of cells whose folder is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from looprepro.config.presence import Presence
from looprepro.files.errors import SchedulerUnreachable
from looprepro.store import Store

if TYPE_CHECKING:
    from looprepro.launch.queue import Queue


def presence(store: Store, results: Path, scale: str, ids: Iterable[str], queue: Queue | None = None) -> dict[str, Presence]:
    """Cell id -> what its files say, and the last look of ``queue`` for cells that were submitted. Writes nothing; reads the
    parquet file only where a cell has no folder."""
    wanted = list(ids)
    if queue is None:
        return _with_archive(store, results, scale, wanted, store.presence(wanted))
    known = {reading.id: queue.presence(reading) for reading in store.readings(wanted)}
    return _with_archive(store, results, scale, wanted, known)


def look(queue: Queue | None, ids: Sequence[str], say: Callable[[str], None]) -> bool:
    """Ask the scheduler; whether it was asked and did not answer."""
    if queue is None:
        return False
    try:
        queue.look(ids)
    except SchedulerUnreachable as error:
        say(f"{error}; shown is what the files say")
        return True
    return False


def open_queue(store: Store, say: Callable[[str], None]) -> Queue | None:
    """The store's submissions and a scheduler to ask; None where nothing is submitted. Says which submissions are broken."""
    from looprepro.launch.queue import Queue
    from looprepro.launch.scheduler import Scheduler
    from looprepro.store.submissions import Submissions

    submissions = Submissions(store)
    prefix = submissions.prefix
    open_ = submissions.open(say) if prefix else []
    if prefix is None or not open_:
        return None
    return Queue(store, Scheduler(prefix, interval=max(one.poll_seconds for one in open_), say=say))


def code_remark(others: Mapping[str, str], finished: int) -> str:
    """One line on finished cells whose code is not the present one (cell id -> commit)."""
    commits = list(dict.fromkeys(others.values()))
    more = f" and {len(commits) - 3} more" if len(commits) > 3 else ""
    return (
        f"{len(others)} of {finished} finished cells were trained by other code ({', '.join(commits[:3])}{more}) and stay; "
        "status --json names them, --runs ELSEWHERE trains anew"
    )


def trained_by_other_code(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Cell id -> commit, of the finished cells ``ids`` whose code differs from the present one."""
    from looprepro.store.code import made_by_other_code

    return {cell_id: str(origin) for cell_id, origin in made_by_other_code(store.layout, ids).items()}


def _with_archive(
    store: Store, results: Path, scale: str, wanted: list[str], known: dict[str, Presence]
) -> dict[str, Presence]:
    absent = set(wanted) - store.existing(wanted)
    if absent and (results / scale / "results.parquet").exists():
        from looprepro.analysis.archive import archived_presence

        known |= archived_presence(results, scale, absent)
    return known
