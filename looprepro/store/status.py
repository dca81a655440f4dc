"""What became of a cell, read from its files. Never writes; reads 10,000 finished cells in under 2 s (plain dicts, no paths).

A result, once trusted, decides: later attempts only add evaluations. Without one the highest attempt decides: it says
how it ended, or its owner lives, or it is lost. A broken file is named and what it would have said counts as missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from looprepro.config.presence import Presence, Status
from looprepro.files.errors import StoreError
from looprepro.store.attempt import read_heartbeat
from looprepro.store.layout import attempt_name, attempt_numbers, read_document
from looprepro.store.owner import Owner, is_dead
from looprepro.store.results import distrust, weights_folder

Document = dict[str, Any]


@dataclass(slots=True)
class AttemptReading:
    """One attempt as its files tell it."""

    number: int
    owner: Document
    """owner.json; empty where it cannot be read."""
    end: Document | None
    step: int
    """Last step it reported."""
    total: int
    seconds: float
    """Device seconds; for one that did not end, from its first file to its last heartbeat."""
    status: str
    """An end status (done, diverged, failed, interrupted, superseded, cancelled), or ``running`` or ``lost``."""
    cause: str = ""


@dataclass(slots=True)
class CellReading:
    """One cell as its files tell it."""

    id: str
    exists: bool = False
    attempts: list[AttemptReading] = field(default_factory=list)
    result: Document | None = None
    evaluations: dict[str, Document] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason) of every file that cannot be trusted."""
    presence: Presence = field(default_factory=Presence)

    @property
    def highest(self) -> AttemptReading | None:
        """The attempt that owns the cell."""
        return self.attempts[-1] if self.attempts else None

    def fruitless(self, after: int = 0) -> int:
        """How many of the latest attempts above ``after`` were lost or interrupted without getting further in steps."""
        count = 0
        for index in range(len(self.attempts) - 1, -1, -1):
            attempt = self.attempts[index]
            before = max((earlier.step for earlier in self.attempts[:index]), default=0)
            if attempt.number <= after or attempt.status not in ("lost", "interrupted"):
                break
            count += 1
            if attempt.step > before:
                break  # it died too, but it had got further: the count starts with it
        return count


def read_cell(folder: str, cell_id: str, now: Callable[[], float] = time.time) -> CellReading:
    """Read one cell folder. A missing folder is a planned cell; a link in its place is a problem and not followed."""
    reading = CellReading(cell_id)
    if os.path.islink(folder):
        _problem(reading, folder, "it is a symbolic link, which is not followed")
        reading.presence = Presence(cause=reading.problems[0][1])
        return reading
    try:
        with os.scandir(folder) as entries:
            names = {entry.name: entry.is_symlink() for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return reading
    reading.exists = True
    for name, is_link in names.items():
        if is_link and name in ("attempts", "evaluations"):
            _problem(reading, f"{folder}/{name}", "it is a symbolic link, which is not followed")
    if names.get("attempts") is False:
        _read_attempts(reading, f"{folder}/attempts", now)
    nonces = {attempt.number: attempt.owner.get("nonce") for attempt in reading.attempts}
    if "result.json" in names:
        reading.result = _trusted(reading, f"{folder}/result.json", nonces)
    if names.get("evaluations") is False:
        _read_evaluations(reading, f"{folder}/evaluations", nonces)
    reading.presence = _presence(reading, folder)
    return reading


def _read_attempts(reading: CellReading, folder: str, now: Callable[[], float]) -> None:
    numbers = attempt_numbers(folder)
    for number in numbers:
        path = f"{folder}/{attempt_name(number)}"
        owner = _document(reading, f"{path}/owner.json") or {}
        end = _document(reading, f"{path}/end.json")
        if end is not None:
            reading.attempts.append(
                AttemptReading(
                    number,
                    owner,
                    end,
                    _integer(end.get("step")),
                    _integer(end.get("total")),
                    _number(end.get("device_seconds", end.get("seconds"))),
                    str(end.get("status", "lost")),
                    str(end.get("cause", "")),
                )
            )
        else:
            reading.attempts.append(_unended(number, path, owner, number == numbers[-1], now))


def _unended(number: int, path: str, document: Document, is_highest: bool, now: Callable[[], float]) -> AttemptReading:
    heartbeat = read_heartbeat(path)
    begun = _modified(f"{path}/owner.json") or _modified(path)
    step, total, last = heartbeat or (0, 0, begun)
    owner = Owner.from_document(document) if document else None
    attempt = AttemptReading(number, document, None, step, total, max(0.0, last - begun), "running")
    seen = _document_or_none(f"{path}/death.json")  # what its parent process, or the scheduler, saw of its end
    if not is_highest or seen or is_dead(owner, now() - last):
        attempt.status = "lost"
    if attempt.status == "lost":
        who = f"process {owner.pid} on {owner.host}" if owner else "its process"
        how = f": {seen.get('cause')}" if seen else " ended without a word (killed, out of memory, or the machine went down)"
        attempt.cause = f"attempt {number}: {who}{how}"
    return attempt


def _read_evaluations(reading: CellReading, folder: str, nonces: dict[int, Any]) -> None:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.name.endswith(".json") and not entry.name.startswith("."))
    for name in names:
        document = _trusted(reading, f"{folder}/{name}", nonces)
        if document is not None:
            reading.evaluations[name[: -len(".json")]] = document


def _presence(reading: CellReading, folder: str) -> Presence:
    highest, result = reading.highest, reading.result
    step = max((attempt.step for attempt in reading.attempts), default=0)
    status: Status = "planned"
    cause = ""
    has_weights = False
    if result is not None:
        status = result["status"]
        step = result["step"]
        cause = str(result.get("reason") or "")
        has_weights = weights_folder(folder, result) is not None
        if highest and highest.status == "failed":  # an evaluation-only attempt
            cause = cause or highest.cause
    elif highest is not None:
        status, cause = _status_of_attempt(highest)
    if reading.problems and (not cause or status in ("planned", "lost")):
        path, reason = reading.problems[0]
        cause = reason if path in reason else f"{path}: {reason}"
    return Presence(
        status=status,
        cause=cause,
        evaluations=frozenset(reading.evaluations),
        attempts=len(reading.attempts),
        step=step,
        hours=sum(attempt.seconds for attempt in reading.attempts) / 3600 if reading.attempts else None,
        has_weights=has_weights,
    )


def _status_of_attempt(attempt: AttemptReading) -> tuple[Status, str]:
    match attempt.status:
        case "running":
            return "running", ""
        case "failed":
            return "failed", attempt.cause
        case "cancelled":
            return "cancelled", attempt.cause
        case "interrupted":
            # Nothing is wrong with it: the wish is there, and a step to go on from.
            return "planned", attempt.cause or "interrupted"
        case "done" | "diverged" | "superseded":
            return "lost", f"attempt {attempt.number} ended as {attempt.status}, but no result can be trusted"
        case _:
            return "lost", attempt.cause


def _trusted(reading: CellReading, path: str, nonces: dict[int, Any]) -> Document | None:
    document = _document(reading, path)
    if document is None:
        return None
    reason = distrust(document, nonces.get)
    if reason:
        _problem(reading, path, f"cannot be trusted: {reason}")
        return None
    return document


def _document(reading: CellReading, path: str) -> Document | None:
    try:
        return read_document(path)
    except StoreError as error:
        _problem(reading, path, error.message)
        return None


def _document_or_none(path: str) -> Document | None:
    try:
        return read_document(path)
    except StoreError:
        return None


def _problem(reading: CellReading, path: str, reason: str) -> None:
    reading.problems.append((path, reason))


def _modified(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
