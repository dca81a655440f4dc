"""``looprepro logs``: what a cell printed, or why its job did not begin."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from looprepro.cli.options import RUNS, Runs, say

if TYPE_CHECKING:
    from looprepro.store import Store

POLL_SECONDS = 1.0
Cell = Annotated[str, typer.Argument(metavar="CELL", help="A cell's id, or the beginning of it.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the cell has ended.")]


def logs(cell: Cell, follow: Follow = False, runs: Runs = RUNS) -> None:
    """Print the log of a cell's latest attempt; where it has none, that of its job."""
    from looprepro.cli.cells import matching_cell
    from looprepro.store import Store

    store = Store(runs)
    name = matching_cell(store, cell)
    shown: Path | None = None
    position = 0
    while True:
        ended = _is_over(store, name)
        newest = _newest(store, name)
        if newest is not None and newest != shown:
            say(str(newest))
            shown, position = newest, 0
        if shown is not None:
            with open(shown, "rb") as file:
                file.seek(position)
                text = file.read()
            position += len(text)
            typer.echo(text.decode("utf-8", "replace"), nl=False)
        if not follow or ended:
            break
        time.sleep(POLL_SECONDS)
    if shown is None:
        say(f"{name} has not begun: there is no log yet")
        raise typer.Exit(1)


def _is_over(store: Store, cell: str) -> bool:
    """Whether nothing more is printed of a cell: nobody runs it, and no job is to begin it."""
    from looprepro.store.submissions import Submissions

    reading = store.reading(cell)
    if reading.presence.status in ("running", "queued", "planned") or (reading.highest and reading.highest.status == "running"):
        return False
    return not any(
        cell in one.places and cell not in one.cancelled and one.refused is None and not one.begun(reading)
        for one in Submissions(store).open()
    )


def _newest(store: Store, cell: str) -> Path | None:
    from looprepro.store.submissions import Submissions

    own = store.log_files(cell)
    if own:
        return own[-1]
    broken: list[str] = []
    for submission in reversed(Submissions(store).open(broken.append)):
        if cell in submission.places:
            files = [path for path in submission.log_files(submission.places[cell][0]) if path.stat().st_size]
            return files[-1] if files else None
    for line in broken:
        say(line)
    return None
