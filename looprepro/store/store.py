"""The store: one object in front of the runs folder."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from looprepro.config.presence import Presence
from looprepro.files.atomic import create_exclusive, explained, write_bytes
from looprepro.files.errors import IdentityCollision, StoreError
from looprepro.files.json_files import canonical_json, pretty_json
from looprepro.store import gc
from looprepro.store.attempt import Attempt
from looprepro.store.layout import SCHEMA, Layout, attempt_numbers, checked_name, read_document
from looprepro.store.owner import current_owner
from looprepro.store.records import CellRecord, record_of
from looprepro.store.requests import read_requests, record_request
from looprepro.store.reservation import claim, file_system_time, is_free
from looprepro.store.status import CellReading, read_cell

_CLOCK_VALID = 60.0
"""Seconds for which the file system's offset from our clock is not measured again."""


class Store:
    """All cells under one runs folder. Reading methods never write; nothing is created before the first write."""

    def __init__(self, root: str | Path = "runs") -> None:
        self.root = Path(root).absolute()
        self.layout = Layout(self.root)
        self._clock: tuple[float, float] | None = None

    # Reading -----------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        """Ids of all cells that have a folder, sorted."""
        self.layout.refuse_links(self.layout.cells)
        try:
            with os.scandir(self.layout.cells) as entries:
                return sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def existing(self, ids: Iterable[str]) -> set[str]:
        """Those of ``ids`` that have a folder."""
        return set(ids) & set(self.ids())

    def reading(self, cell_id: str) -> CellReading:
        """One cell with its attempts, result, evaluations and problems."""
        return read_cell(self._folder(cell_id), cell_id)

    def readings(self, ids: Iterable[str]) -> Iterator[CellReading]:
        """Many cells, in the order given."""
        self.layout.refuse_links(self.layout.cells)
        return (self.reading(cell_id) for cell_id in ids)

    def presence(self, ids: Iterable[str]) -> dict[str, Presence]:
        """Cell id -> what is there. Under 2 s for 10,000 finished cells."""
        return {reading.id: reading.presence for reading in self.readings(ids)}

    def records(self, ids: Iterable[str]) -> Iterator[CellRecord]:
        """One full record per id that has a folder, in the order given."""
        for reading in self.readings(ids):
            if reading.exists:
                yield record_of(self._folder(reading.id), reading)

    def requests(self, scale: str) -> list[dict[str, Any]]:
        """What was asked for at ``scale``; broken request files are left out (:meth:`request_problems` names them)."""
        return [document for _, document in read_requests(self.layout, scale) if isinstance(document, dict)]

    def request_problems(self, scale: str) -> list[str]:
        """One line per request file that cannot be read."""
        return [str(error) for _, error in read_requests(self.layout, scale) if isinstance(error, StoreError)]

    def log_files(self, cell_id: str) -> list[Path]:
        """log.txt of every attempt that has one, the latest last."""
        folder = self.layout.attempts(cell_id)
        self.layout.refuse_links(folder)
        logs = (self.layout.attempt(cell_id, number) / "log.txt" for number in attempt_numbers(folder))
        return [log for log in logs if log.is_file() and not log.is_symlink()]

    def highest_attempts(self, ids: Iterable[str]) -> dict[str, int]:
        """Cell id -> number of its latest attempt (0: none)."""
        highest = {}
        for cell_id in ids:
            numbers = attempt_numbers(f"{self._folder(cell_id)}/attempts")
            highest[cell_id] = numbers[-1] if numbers else 0
        return highest

    def verify(self, configs: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """:class:`IdentityCollision` where a cell folder holds another configuration. Writes nothing."""
        self.layout.refuse_links(self.layout.cells)
        for cell_id, config in configs:
            path = f"{self._folder(cell_id)}/cell.json"
            try:
                document = read_document(path)
            except StoreError as error:
                if "symbolic link" in error.message:
                    raise
                continue  # not whole: register writes it anew
            if document is not None:
                _compare(path, document.get("config"), config)

    # Writing -----------------------------------------------------------------------------------------------------

    def unreadable(self, cell_ids: Iterable[str]) -> list[str]:
        """Those of the cells that have a folder and no cell.json that can be read. :meth:`register` writes it anew."""
        found = []
        for cell_id in cell_ids:
            try:
                absent = read_document(f"{self._folder(cell_id)}/cell.json") is None
            except StoreError:
                absent = True
            if absent and self.layout.cell(cell_id).is_dir():
                found.append(cell_id)
        return found

    def register(self, cell_id: str, config: Mapping[str, Any]) -> None:
        """Keep the configuration beside the cell, once. :class:`IdentityCollision` with a diff where it holds another."""
        path = self.layout.cell(cell_id) / "cell.json"
        self.layout.refuse_links(path)
        data = pretty_json({"schema": SCHEMA, "config": config}).encode("utf-8")
        if not path.exists() and create_exclusive(path, data):
            return
        try:
            document = read_document(path)
        except StoreError:
            document = None
        if document is None:
            write_bytes(path, data)  # not whole; the id is the hash of what we write
        else:
            _compare(str(path), document.get("config"), config)

    def claim(
        self,
        cell_id: str,
        *,
        needed: Callable[[], bool] = lambda: True,
        contents: Mapping[str, bytes] | None = None,
        beat_seconds: float = 1.0,
    ) -> Attempt | None:
        """Hold a cell. None where a live process holds it, another claimer was faster, or ``needed()`` is false by then."""
        return claim(
            self.layout,
            cell_id,
            needed=needed,
            contents=contents or {},
            beat_seconds=beat_seconds,
            clock=self._file_system_now,
        )

    def is_free(self, cell_id: str) -> bool:
        """Whether no live process holds the cell, as a claim would judge it (by the file system's clock, read by a probe)."""
        folder = self.layout.attempts(cell_id)
        self.layout.refuse_links(folder)
        numbers = attempt_numbers(folder)
        if not numbers:
            return True
        return is_free(self.layout.attempt(cell_id, numbers[-1]), current_owner(), lambda: self._file_system_now(folder))

    def record_request(self, request: Mapping[str, Any]) -> Path:
        """Keep {"sweep", "scale", "overrides", "cells"}: what collect places cells by."""
        return record_request(self.layout, request)

    def new_launch(self) -> Path:
        """A fresh private folder for the manifest and logs of one command."""
        folder = self.layout.launches / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        self.layout.refuse_links(folder)
        with explained(folder, "make"):
            folder.mkdir(parents=True)
        return folder

    def garbage(self, ids: Iterable[str] | None = None) -> list[gc.Garbage]:
        """What could be freed (of all cells, or of ``ids``)."""
        return list(gc.find_garbage(self.layout, self.ids() if ids is None else ids))

    def free(self, garbage: Iterable[gc.Garbage]) -> int:
        """Free it; returns the bytes."""
        return gc.free(self.layout, garbage)

    # Inside ------------------------------------------------------------------------------------------------------

    def _folder(self, cell_id: str) -> str:
        return f"{self.root}/cells/{checked_name(cell_id)}"

    def _file_system_now(self, folder: Path) -> float:
        if self._clock is None or time.monotonic() - self._clock[0] > _CLOCK_VALID:
            self._clock = (time.monotonic(), file_system_time(folder) - time.time())
        return time.time() + self._clock[1]


def _compare(path: str, stored: Any, asked: Mapping[str, Any]) -> None:
    if canonical_json(stored) == canonical_json(asked):
        return
    differences = "; ".join(_differences(json.loads(canonical_json(stored)), json.loads(canonical_json(asked)), ""))
    raise IdentityCollision(
        f"{path} holds another configuration than the one that hashes to its name: {differences}",
        "Move that cell folder away, or change the asked configuration; nothing was overwritten",
    )


def _differences(stored: Any, asked: Any, key: str) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(asked, dict):
        for name in sorted(stored.keys() | asked.keys()):
            path = f"{key}.{name}" if key else name
            yield from _differences(stored.get(name, "(absent)"), asked.get(name, "(absent)"), path)
    elif stored != asked:
        yield f"{key}: stored {stored!r}, asked {asked!r}"
