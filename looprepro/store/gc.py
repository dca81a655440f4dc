"""What could be freed under runs/, and freeing it when asked.

Never proposed: a result's weights, the newest two checkpoints of an unfinished cell, anything of a cell that a live
process holds, and the small files (owner, end, metrics, log) that say what happened.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from looprepro.files.atomic import explained
from looprepro.store.layout import CHECKPOINT_NAME, Layout, attempt_name
from looprepro.store.owner import is_dead
from looprepro.store.reservation import CLAIM_PREFIX, observe
from looprepro.store.results import weights_folder
from looprepro.store.status import CellReading, read_cell

KEPT_CHECKPOINTS = 2
"""Of an unfinished cell: the newest and the one before, should the newest turn out broken."""
LEFTOVER_AGE = 3600.0
"""Seconds after which a temporary file counts as left behind."""
LAUNCH_AGE = 30 * 86400.0
"""Seconds after which the manifest and worker logs of a command are of no more use."""
_LEFTOVER_ENDINGS = (".tmp", ".untrusted", ".freed")


@dataclass(frozen=True, slots=True)
class Garbage:
    """One file or folder that could be freed."""

    path: Path
    bytes: int
    reason: str
    cell_id: str | None = None


def find_garbage(layout: Layout, ids: Iterable[str]) -> Iterator[Garbage]:
    """What could be freed of the cells ``ids`` and of the folders around them. Writes nothing."""
    for cell_id in ids:
        folder = layout.cell(cell_id)
        reading = read_cell(str(folder), cell_id)
        if reading.exists and not _is_held(reading):
            yield from _checkpoints(folder, reading)
            yield from _leftovers(folder, cell_id)
            for part in ("attempts", "evaluations", "submissions", "queue"):
                yield from _leftovers(folder / part, cell_id)
            for attempt in reading.attempts:
                yield from _leftovers(layout.attempt(cell_id, attempt.number), cell_id)
    yield from _leftovers(layout.root, None, may_be_link=True)
    for part in ("cells", "submissions", "sources", "requests"):
        yield from _leftovers(layout.root / part, None)
    for part in ("requests", "submissions"):
        if not (layout.root / part).is_symlink():
            for folder in sorted((layout.root / part).glob("*")):
                yield from _leftovers(folder, None)
    yield from _old_launches(layout.launches)


def free(layout: Layout, garbage: Iterable[Garbage]) -> int:
    """Delete; returns the bytes freed. A cell that was taken meanwhile is left alone; a link is never followed."""
    freed = 0
    for item in garbage:
        layout.refuse_links(item.path)
        if item.cell_id is not None and _is_held(read_cell(str(layout.cell(item.cell_id)), item.cell_id)):
            continue
        # Renamed first, so that a half-deleted checkpoint is never taken for a checkpoint.
        doomed = item.path.with_name(f".{item.path.name}.{secrets.token_hex(6)}.freed")
        with explained(item.path, "free"):
            try:
                os.rename(item.path, doomed)
            except FileNotFoundError:
                continue  # somebody else freed it
            if doomed.is_dir():
                shutil.rmtree(doomed)
            else:
                doomed.unlink()
        freed += item.bytes
    return freed


def _is_held(reading: CellReading) -> bool:
    return any(attempt.status == "running" for attempt in reading.attempts)


def _checkpoints(folder: Path, reading: CellReading) -> Iterator[Garbage]:
    found: list[tuple[int, int, Path]] = []
    for attempt in reading.attempts:
        path = folder / "attempts" / attempt_name(attempt.number)
        for name in os.listdir(path):
            match = CHECKPOINT_NAME.fullmatch(name)
            if match and not (path / name).is_symlink():
                found.append((int(match[1]), attempt.number, path / name))
    found.sort(reverse=True)
    if reading.result is not None:
        kept = {weights_folder(folder, reading.result)}
        reason = "checkpoint of a finished cell, not its weights"
        if reading.presence.status == "done" and None in kept:
            return  # the weights are not where the result says: these may be all that is left of them
    else:
        kept = {path for _, _, path in found[:KEPT_CHECKPOINTS]}
        reason = "checkpoint of a superseded attempt or older than the newest two"
    for _, _, path in found:
        if path not in kept:
            yield Garbage(path, _size(path), reason, reading.id)


def _leftovers(folder: Path, cell_id: str | None, *, may_be_link: bool = False) -> Iterator[Garbage]:
    if folder.is_symlink() and not may_be_link:
        return
    try:
        entries = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in entries:
        path = folder / name
        if not (name.startswith(".") and name.endswith(_LEFTOVER_ENDINGS)) or path.is_symlink():
            continue
        if name.startswith(CLAIM_PREFIX):
            owner, silence = observe(path, time.time)
            abandoned = silence > LEFTOVER_AGE or (owner is not None and is_dead(owner, silence))
        else:
            abandoned = time.time() - path.lstat().st_mtime > LEFTOVER_AGE
        if abandoned:
            kind = "set aside as not trusted" if name.endswith(".untrusted") else "temporary, left by a process that died"
            yield Garbage(path, _size(path), kind, cell_id)


def _old_launches(folder: Path) -> Iterator[Garbage]:
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            newest = max([path.stat().st_mtime, *(file.lstat().st_mtime for file in path.iterdir())])
            if time.time() - newest > LAUNCH_AGE:
                yield Garbage(path, _size(path), "manifest and worker logs of a command of more than 30 days ago")


def _size(path: Path) -> int:
    """Bytes of a file or of everything in a folder; links count as themselves."""
    try:
        if not path.is_dir() or path.is_symlink():
            return path.lstat().st_size
        return sum(_size(Path(entry.path)) for entry in os.scandir(path))
    except FileNotFoundError:
        return 0
