"""Claim a cell: rename a finished folder onto the next attempt number.

A rename onto a folder that is not empty fails, so exactly one claimer gets a number, on local and network disks alike
and without any lock; and since the folder is finished before it gets the name, no reader ever sees half an attempt.

The order of looks matters. The number is read first, then whether its owner ended, then whether work is left: whatever
that owner published, it published before it ended, so a cell finished by another process is never run again.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from looprepro.files.atomic import explained, fsync_folder, temporary_name
from looprepro.files.errors import StoreError
from looprepro.files.json_files import canonical_json, pretty_json
from looprepro.store.attempt import BALLAST, BALLAST_BYTES, Attempt, read_heartbeat
from looprepro.store.layout import SCHEMA, Layout, attempt_name, attempt_numbers, read_document
from looprepro.store.owner import Owner, current_owner, is_dead

CLAIM_PREFIX = ".claim-"


def claim(
    layout: Layout,
    cell_id: str,
    *,
    needed: Callable[[], bool],
    contents: Mapping[str, bytes],
    beat_seconds: float,
    clock: Callable[[Path], float],
) -> Attempt | None:
    """Hold the cell as its next attempt; None where a live process holds it, another was faster, or ``needed`` says no.

    ``contents``: further files of the attempt (provenance), there from its first moment. ``clock``: the file system's
    present time in the folder given.
    """
    folder = layout.attempts(cell_id)
    layout.refuse_links(folder)
    with explained(folder, "make"):
        folder.mkdir(parents=True, exist_ok=True)
    numbers = attempt_numbers(folder)
    owner = current_owner()
    if numbers and not is_free(folder / attempt_name(numbers[-1]), owner, lambda: clock(folder)):
        return None
    if not needed():
        return None
    number = numbers[-1] + 1 if numbers else 1
    temporary = folder / f"{CLAIM_PREFIX}{owner.nonce}.tmp"
    with explained(folder):
        try:
            _fill(temporary, owner, contents)
            os.rename(temporary, folder / attempt_name(number))
            fsync_folder(folder)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return None  # another claimer was faster
            raise
    return Attempt(layout, cell_id, number, owner.nonce, beat_seconds=beat_seconds)


def is_free(attempt: Path, claimer: Owner, now: Callable[[], float]) -> bool:
    """Whether an attempt has ended or its owner is dead, so that a next one may be made."""
    try:
        if read_document(attempt / "end.json") is not None:
            return True
    except StoreError:
        return True  # a broken end.json was still written by its owner's end
    if (attempt / "death.json").exists():
        return True
    owner, silence = observe(attempt, now)
    if owner is not None and owner.is_earlier_start_of(claimer):
        return True
    return is_dead(owner, silence)


def observe(attempt: Path, now: Callable[[], float]) -> tuple[Owner | None, float]:
    """The owner of an attempt (None: unreadable) and the seconds since its last heartbeat."""
    try:
        document = read_document(attempt / "owner.json")
    except StoreError:
        document = None
    heartbeat = read_heartbeat(attempt)
    try:
        last = heartbeat[2] if heartbeat else attempt.stat().st_mtime
    except FileNotFoundError:
        last = 0.0
    return (Owner.from_document(document) if document else None), now() - last


def file_system_time(folder: Path) -> float:
    """The present time by the clock that stamps files in ``folder`` (a file server's clock is not ours)."""
    probe = temporary_name(folder / "clock")
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return time.time()  # a full disk: our own clock is the better guess than none
    try:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
        probe.unlink(missing_ok=True)


def _fill(folder: Path, owner: Owner, contents: Mapping[str, bytes]) -> None:
    folder.mkdir()
    files = {
        **contents,
        "owner.json": pretty_json(owner.document()).encode("utf-8"),
        "heartbeat": (canonical_json({"schema": SCHEMA, "step": 0, "total": 0}) + "\n").encode("utf-8"),
        BALLAST: bytes(BALLAST_BYTES),
    }
    for name, data in files.items():
        with open(folder / name, "xb") as file:  # not atomic: the folder has no name yet that anybody reads
            file.write(data)
            file.flush()
            if name in ("owner.json", BALLAST):
                os.fsync(file.fileno())
