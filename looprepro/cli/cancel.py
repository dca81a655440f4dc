"""``looprepro cancel``: take submitted cells back. It is written down first, then the scheduler is told."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RUNS, Runs, Scale, say

if TYPE_CHECKING:
    from looprepro.store import Store
    from looprepro.store.submissions import Submission

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SWEEP|CELL]...", help="Sweeps, or cells by id; nothing: all that is submitted.", show_default=False
    ),
]


def cancel(targets: Targets = None, scale: Scale = None, runs: Runs = RUNS) -> None:
    """Cancel submitted cells. A job that also runs other cells goes on with those. Results stay; sweep submits again."""
    from looprepro.cli.presence import open_queue
    from looprepro.files.errors import SchedulerUnreachable
    from looprepro.store import Store

    store = Store(runs)
    queue = open_queue(store, say)
    wanted = _cells(store, targets, scale)
    if queue is None:
        say("nothing is submitted")
        return
    marked: dict[str, set[str]] = defaultdict(set)
    for reading in store.readings(cell for cell in queue.places if wanted is None or cell in wanted):
        submission = queue.places[reading.id].submission
        if submission.refused is None and not submission.ended(reading):
            marked[submission.name].add(reading.id)
    for name, cells in marked.items():
        queue.submissions.cancel(name, sorted(cells))
    say(f"{sum(map(len, marked.values()))} cells cancelled")
    queue.refresh()
    tasks = []
    for one in queue.open:
        unwanted = [index for index in range(len(one.jobs)) if _nothing_left(store, one, index)]
        if one.job is not None and one.name in marked:
            tasks += [f"{one.job}"] if len(unwanted) == len(one.jobs) else [f"{one.job}_{index}" for index in unwanted]
    if tasks and queue.scheduler is not None:
        try:
            queue.scheduler.cancel(tasks)
        except SchedulerUnreachable as error:
            raise SchedulerUnreachable(
                error.message,
                "The cells are marked and their jobs will do nothing; run the command again to end those that run",
            ) from error


def _nothing_left(store: Store, submission: Submission, index: int) -> bool:
    """Whether a job has cells that were cancelled, and no other that it could still run."""
    cells = [cell.id for cell in submission.jobs[index]]
    if submission.cancelled.isdisjoint(cells):
        return False
    return all(cell in submission.cancelled or submission.ended(store.reading(cell)) for cell in cells)


def _cells(store: Store, targets: list[str] | None, scale: str | None) -> set[str] | None:
    """Ids of the cells that ``targets`` name; None for all."""
    from looprepro.cli.cells import matching_cell
    from looprepro.cli.options import expansions_of
    from looprepro.planning import available_sweeps

    if not targets:
        return None
    found: set[str] = set()
    for target in targets:
        if target in available_sweeps() or target.endswith((".yaml", ".yml")):
            found |= {cell.id for expansion in expansions_of([target], False, scale, None, None) for cell in expansion.cells}
        else:
            found.add(matching_cell(store, target, "sweep and no cell"))
    return found
