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
    from looprepro.store import Store

    store = Store(runs)
    name = find_cell(store, cell)
    shown: Path | None = None
    position = 0
    while True:
        ended = store.reading(name).presence.status not in ("running", "queued", "planned")
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


def find_cell(store: Store, text: str) -> str:
    """The one cell whose id is or begins with ``text``; :class:`ConfigError` where there is none or several."""
    from looprepro.files.errors import ConfigError

    found = [name for name in store.ids() if name.startswith(text)]
    if text in found or len(found) == 1:
        return text if text in found else found[0]
    if not found:
        raise ConfigError(f"no cell '{text}' in {store.root}", "looprepro status names the cells that are not complete")
    raise ConfigError(f"'{text}' begins {len(found)} cells", f"Give more of the id: {', '.join(found[:3])}")


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
