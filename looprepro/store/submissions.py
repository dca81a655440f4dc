"""What was handed to a scheduler: reservations, submissions and their ends, under runs/. All files written once.

    store.json                               {"id": 8 hex}: begins the names of all jobs of this runs folder
    sources/<hash>/                          the code that submitted jobs run
    submissions/<name>/                      one sbatch, complete before it is called
        submission.json                      created, owner, profile, source, jobs: [[{"id", "after"}, ...] per array index]
        manifests/<index>.json  script.sh  logs/
        submitted.json | refused.json        what became of it
        cancelled/<cell>.json                this cell of it is not wanted any more
        over.json                            the scheduler has nothing left of it
    cells/<id>/queue/<NNNN>.json             {"launch", "owner"}: the reservation; who creates the next number submits the cell

A reservation is made before sbatch, so that two commands never submit a cell twice, and is worth as much as what it
leads to: a submission that is not over, or a command that still runs.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from looprepro.files.atomic import create_exclusive, create_folder_with
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import pretty_json
from looprepro.store.layout import SCHEMA, checked_name, read_document
from looprepro.store.owner import Owner, current_owner, is_dead
from looprepro.store.status import CellReading
from looprepro.store.store import Store

_RESERVATION = re.compile(r"([0-9]{4,9})\.json")


@dataclass(frozen=True, slots=True)
class JobCell:
    """A cell of a job."""

    id: str
    after: int
    """Its latest attempt when it was submitted."""


@dataclass(frozen=True)
class Submission:
    """One array handed to the scheduler, as its files tell."""

    path: Path
    created: float
    """Seconds since 1970 by the submitting machine's clock."""
    owner: Owner | None
    profile: str
    poll_seconds: float
    requeue: bool
    jobs: tuple[tuple[JobCell, ...], ...]
    job: int | None = None
    """The scheduler's id; None while nobody knows that there is one."""
    refused: str | None = None
    """Why there is no job; None where there is one, or may be."""
    cancelled: frozenset[str] = field(default_factory=frozenset)
    """Cells that are not wanted of it any more."""
    over: bool = False
    """The scheduler has nothing left of it."""

    @property
    def name(self) -> str:
        """The job's unique name."""
        return self.path.name

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Cell id -> (array index, latest attempt at submission)."""
        return {cell.id: (index, cell.after) for index, job in enumerate(self.jobs) for cell in job}

    def begun(self, reading: CellReading) -> bool:
        """Whether a cell of it has an attempt that is younger than the submission."""
        highest = reading.highest
        return highest is not None and highest.number > self.places[reading.id][1]

    def ended(self, reading: CellReading) -> bool:
        """Whether it has nothing left to do for a cell: an attempt since then is done (measured, too), diverged or failed.

        The result alone does not tell: a trained cell is submitted again for a new measurement.
        """
        after = self.places[reading.id][1]
        return any(one.number > after and one.status in ("done", "diverged", "failed") for one in reading.attempts)

    def abandoned(self, now: float) -> bool:
        """The command that was submitting it is gone."""
        return is_dead(self.owner, now - self.created)

    def log_files(self, index: int) -> list[Path]:
        """What the job itself printed, not its cells: standard output, then errors."""
        return sorted(self.path.glob(f"logs/*_{index}_0_log.*"), key=lambda path: path.suffix != ".out")


class Submissions:
    """All submissions of one store. Reading methods never write."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.root / "submissions"
        self.sources = store.root / "sources"

    # Reading -----------------------------------------------------------------------------------------------------

    @property
    def prefix(self) -> str | None:
        """What begins the names of our jobs; None where nothing was ever submitted."""
        document = read_document(self.store.root / "store.json")
        return f"looprepro-{document['id']}-" if document else None

    def open(self, say: Callable[[str], None] = lambda line: None) -> list[Submission]:
        """Submissions that are not known to be over, in the order of their creation. Broken ones: a line each to ``say``."""
        self.store.layout.refuse_links(self.folder)
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if not entry.name.startswith("."))
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            if self.is_over(name):
                continue
            try:
                found.append(self.read(name))
            except (StoreError, ConfigError) as error:  # the latter: a folder whose name is none of ours
                say(str(error))
        return sorted(found, key=lambda one: (one.created, one.name))

    def is_over(self, name: str) -> bool:
        """The scheduler is known to have nothing left of it."""
        return os.path.exists(self.folder / name / "over.json")

    def read(self, name: str) -> Submission:
        """One submission; :class:`StoreError` where its file is broken."""
        path = self.folder / checked_name(name)
        remedy = f"Move the folder out of {self.folder}"
        try:
            document = read_document(path / "submission.json")
        except StoreError as error:  # without that file the folder would be no better
            raise StoreError(error.message, remedy) from error
        if document is None:
            raise StoreError(f"{path} is no submission", remedy)
        submitted = read_document(path / "submitted.json")
        refused = read_document(path / "refused.json")
        try:
            return Submission(
                path,
                float(document["created"]),
                Owner.from_document(document["owner"]),
                str(document["profile"]),
                float(document["poll_seconds"]),
                bool(document["requeue"]),
                tuple(tuple(JobCell(cell["id"], int(cell["after"])) for cell in job) for job in document["jobs"]),
                int(submitted["job"]) if submitted else None,
                str(refused["why"]) if refused else None,
                _cancelled(path),
                self.is_over(name),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{path} is no submission: {error}", remedy) from error

    def reservation(self, cell_id: str) -> tuple[int, str, Owner | None]:
        """(number, launch, owner) of a cell's latest reservation; number 0 where it has none."""
        folder = self.store.layout.cell(cell_id) / "queue"
        numbers = _reservation_numbers(folder)
        if not numbers:
            return 0, "", None
        document = read_document(self.store.layout.reservation(cell_id, numbers[-1])) or {}
        owner = document.get("owner")
        return numbers[-1], str(document.get("launch", "")), Owner.from_document(owner) if owner else None

    # Writing -----------------------------------------------------------------------------------------------------

    def ensure_prefix(self) -> str:
        """The prefix of our jobs' names, made up at the first submission."""
        path = self.store.root / "store.json"
        create_exclusive(path, _bytes({"id": secrets.token_hex(4)})) if not path.exists() else None
        prefix = self.prefix
        assert prefix is not None
        return prefix

    def new_launch(self) -> str:
        """The name that the arrays of one command share; each adds ``-<number>``."""
        return new_launch(self.ensure_prefix())

    def reserve(self, cell_id: str, number: int, launch: str) -> bool:
        """Make reservation ``number`` of a cell; False where another command was faster."""
        path = self.store.layout.reservation(cell_id, number)
        self.store.layout.refuse_links(path)
        return create_exclusive(path, _bytes({"launch": launch, "owner": current_owner().document()}))

    def keep_source(self, hash_: str, writer: Callable[[Path], None]) -> Path:
        """The folder of the source with that hash; filled by ``writer`` unless it is there, and then never changed."""
        folder = self.sources / checked_name(hash_)
        self.store.layout.refuse_links(folder)
        if folder.is_dir():
            return folder
        try:
            create_folder_with(folder, writer)
        except StoreError:
            if not folder.is_dir():  # another command kept the same source meanwhile
                raise
        return folder

    def create(
        self,
        name: str,
        *,
        profile: str,
        poll_seconds: float,
        requeue: bool,
        source: str,
        jobs: Sequence[Sequence[JobCell]],
        manifests: Sequence[Mapping[str, Any]],
        script: str,
    ) -> Path:
        """Write a submission's folder, complete; returns its script."""
        path = self.folder / checked_name(name)
        self.store.layout.refuse_links(path)
        document = {
            "created": time.time(),
            "owner": current_owner().document(),
            "profile": profile,
            "poll_seconds": poll_seconds,
            "requeue": requeue,
            "source": source,
            "jobs": [[{"id": cell.id, "after": cell.after} for cell in job] for job in jobs],
        }
        files = {"submission.json": _bytes(document), "script.sh": script.encode("utf-8", "surrogateescape")}
        files |= {f"manifests/{index}.json": _bytes(manifest) for index, manifest in enumerate(manifests)}

        def fill(target: Path) -> None:
            for folder in ("manifests", "logs", "cancelled"):
                (target / folder).mkdir()
            for file, data in files.items():
                (target / file).write_bytes(data)

        create_folder_with(path, fill)
        return path / "script.sh"

    def record_submitted(self, name: str, job: int, *, adopted: bool) -> None:
        """The scheduler has it."""
        create_exclusive(self.folder / name / "submitted.json", _bytes({"job": job, "adopted": adopted}))

    def record_refused(self, name: str, why: str) -> None:
        """There is no job; one that appears later all the same reads this and does nothing."""
        create_exclusive(self.folder / name / "refused.json", _bytes({"why": why}))

    def record_over(self, name: str) -> None:
        """The scheduler has nothing left of it: never ask for it again."""
        create_exclusive(self.folder / name / "over.json", _bytes({"seen": time.time()}))

    def cancel(self, name: str, cells: Iterable[str]) -> None:
        """These cells are not wanted of this submission any more: written before scancel, which may not be answered."""
        for cell in cells:
            create_exclusive(self.folder / name / "cancelled" / f"{checked_name(cell)}.json", _bytes({"at": time.time()}))


def new_launch(prefix: str) -> str:
    """A name that no other command makes up."""
    return f"{prefix}{time.strftime('%y%m%d%H%M%S')}-{secrets.token_hex(3)}"


def is_called_off(submission: Path, cell_id: str) -> bool:
    """A job's question: is this cell not wanted of it any more (cancelled, or the submission counts as refused)?"""
    return os.path.exists(submission / "refused.json") or os.path.exists(submission / "cancelled" / f"{cell_id}.json")


def record_death(attempt: Path, cause: str) -> None:
    """Keep beside an attempt that wrote no end what its parent process, or the scheduler, saw: from then on it is lost. What
    was said first stays."""
    create_exclusive(attempt / "death.json", _bytes({"cause": cause}))


def _reservation_numbers(folder: Path) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            return sorted(int(match[1]) for entry in entries if (match := _RESERVATION.fullmatch(entry.name)))
    except FileNotFoundError:
        return []


def _cancelled(path: Path) -> frozenset[str]:
    def names() -> Iterator[str]:
        with os.scandir(path / "cancelled") as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    yield entry.name[: -len(".json")]

    try:
        return frozenset(names())
    except FileNotFoundError:
        return frozenset()


def _bytes(document: Mapping[str, Any]) -> bytes:
    return pretty_json({"schema": SCHEMA, **document}).encode("utf-8")
