"""One execution of a cell, held by this process: heartbeat, fencing, publication, end.

The attempt's number is its fencing token: the highest number owns the cell. A lower one that notices must stop and
write nothing shared any more; its own folder it may still finish.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from looprepro.files.atomic import create_exclusive, write_text
from looprepro.files.errors import LoopreproError, StoreError
from looprepro.files.json_files import canonical_json, pretty_json
from looprepro.store.layout import CHECKPOINT_NAME, SCHEMA, Layout, attempt_name, attempt_numbers, read_bytes
from looprepro.store.results import Document, publish, read_result

BALLAST = "ballast"
BALLAST_BYTES = 8192
"""Held on the disk so that a full one still takes the few bytes that say why the cell failed."""
End = Literal["done", "diverged", "failed", "interrupted", "superseded", "cancelled"]


class Superseded(LoopreproError):
    """Another attempt owns the cell now: stop, and write nothing shared."""


class Attempt:
    """A reservation that this process holds. Safe to use from the training thread and a heartbeat thread at once."""

    def __init__(self, layout: Layout, cell_id: str, number: int, nonce: str, *, beat_seconds: float = 1.0) -> None:
        self.cell_id = cell_id
        self.number = number
        self.nonce = nonce
        self.path = layout.attempt(cell_id, number)
        """The attempt's folder, whose checkpoint-*, metrics.jsonl, series.json training writes."""
        self.step = 0
        self.total = 0
        self.devices = 1.0
        """What one second holds, in devices: one per rank; of a GPU that several processes share, a part."""
        self.device_seconds: float | None = None
        """Set where wall seconds times devices are not what this cell was given: by a pack's training. Else None."""
        self.ended = False
        """end.json is written, or there is no folder any more to write it into."""
        self._layout = layout
        self._beat_seconds = beat_seconds
        self._started = time.monotonic()
        self._last_beat = float("-inf")
        self._lock = threading.Lock()
        self._closed = False

    @property
    def cell_path(self) -> Path:
        """The cell's folder."""
        return self._layout.cell(self.cell_id)

    def beat(self, step: int, total: int) -> None:
        """Report the last finished step of ``total``. Cheap: the disk sees at most one write per ``beat_seconds``."""
        self.step, self.total = step, total
        if time.monotonic() - self._last_beat >= self._beat_seconds:
            self.touch()

    def touch(self) -> None:
        """Write the heartbeat now. A heartbeat that cannot be written costs no training: silence is judged generously."""
        with self._lock:
            if self._closed:
                return
            self._last_beat = time.monotonic()
            text = canonical_json({"schema": SCHEMA, "step": self.step, "total": self.total})
            try:
                # Only into a folder that is there: a removed attempt must not come back as one without an owner.
                if self.path.is_dir():
                    write_text(self.path / "heartbeat", text + "\n", durable=False)
            except StoreError as error:
                print(f"heartbeat: {error}", flush=True)

    def ensure_owner(self) -> None:
        """:class:`Superseded` unless this is still the cell's highest attempt."""
        numbers = attempt_numbers(self.path.parent)
        if not numbers or numbers[-1] != self.number:
            newest = f"attempt {numbers[-1]}" if numbers else "nobody (the folder is gone)"
            raise Superseded(f"cell {self.cell_id}: attempt {self.number} was superseded, {newest} owns the cell")

    def checkpoint_folders(self) -> list[Path]:
        """Checkpoint folders of all attempts of the cell, the highest step first (then the latest attempt)."""
        found: list[tuple[int, int, Path]] = []
        for number in attempt_numbers(self.path.parent):
            folder = self.path.parent / attempt_name(number)
            with os.scandir(folder) as entries:
                for entry in entries:
                    match = CHECKPOINT_NAME.fullmatch(entry.name)
                    if match and entry.is_dir(follow_symlinks=False):
                        found.append((int(match[1]), number, folder / entry.name))
        return [path for _, _, path in sorted(found, reverse=True)]

    def result(self) -> Document | None:
        """The cell's trusted result, if training has finished (then only evaluations are missing)."""
        try:
            return read_result(self.cell_path)
        except StoreError:
            return None  # counted missing; publish_result sets the broken file aside

    def publish_result(self, document: Mapping[str, Any]) -> bool:
        """Publish the cell's result. False where another attempt did first; :class:`Superseded` where we may not."""
        self.ensure_owner()
        return publish(self.cell_path, self.cell_path / "result.json", self._signed(document), pretty=True)

    def write_evaluation(self, evaluation_id: str, document: Mapping[str, Any]) -> bool:
        """Publish one evaluation: {"evaluation", "metrics", "series"}. False where a trusted one is there already.

        Its "submission" goes into a file of its own before: an evaluation that is there has it, where its task has one.
        """
        self.ensure_owner()
        path = self._layout.evaluation(self.cell_id, evaluation_id)
        self._layout.refuse_links(path)
        if "submission" in document:
            answers = self._layout.submission(self.cell_id, evaluation_id)
            self._layout.refuse_links(answers)
            write_text(answers, canonical_json(document["submission"]) + "\n")
        measured = {key: value for key, value in document.items() if key != "submission"}
        return publish(self.cell_path, path, self._signed(measured), pretty=False)

    def end(self, status: End, cause: str = "", step: int | None = None, *, deterministic: bool = False) -> None:
        """Write end.json once; nothing of this attempt is written afterwards.

        ``cause`` is one line. ``deterministic``: the same command would fail the same way (never retried unasked).
        """
        seconds = time.monotonic() - self._started
        document = {
            "schema": SCHEMA,
            "nonce": self.nonce,
            "status": status,
            "cause": " ".join(cause.split()),
            "step": self.step if step is None else step,
            "total": self.total,
            "seconds": round(seconds, 3),
            "device_seconds": round(seconds * self.devices if self.device_seconds is None else self.device_seconds, 3),
            "deterministic": deterministic,
        }
        with self._lock:
            self._closed = True
            if self.path.is_dir():  # a removed attempt must not come back as one without an owner
                (self.path / BALLAST).unlink(missing_ok=True)
                create_exclusive(self.path / "end.json", pretty_json(document).encode("utf-8"))
            self.ended = True

    def _signed(self, document: Mapping[str, Any]) -> Document:
        return {**document, "schema": SCHEMA, "nonce": self.nonce, "attempt": self.number}


def read_heartbeat(folder: str | Path) -> tuple[int, int, float] | None:
    """(step, total, modification time) of an attempt's heartbeat; None where there is none. An unreadable one has step 0."""
    try:
        content = read_bytes(os.path.join(folder, "heartbeat"))
    except StoreError:
        return None
    if content is None:
        return None
    try:
        document = json.loads(content[0])
        return int(document["step"]), int(document["total"]), content[1]
    except (ValueError, KeyError, TypeError):
        return 0, 0, content[1]
