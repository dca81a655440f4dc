"""Where things lie under runs/, and reading them without following a symbolic link out of it.

    cells/<id>/cell.json                     the whole configuration that hashes to <id>
    cells/<id>/attempts/<NNNN>/              one execution; the number is the reservation and the fencing token
    cells/<id>/result.json                   published once
    cells/<id>/evaluations/<evaluation>.json
    cells/<id>/queue/<NNNN>.json             reservations for jobs of a scheduler (submissions.py)
    cells/<id>/submissions/<evaluation>.json what the benchmark's own scorer reads of an evaluation (ARC)
    requests/<scale>/<sweep>-<hash>.json     what was asked for
    launches/<time>-<hex>/                   manifest and logs of the workers of one command

runs/ itself may be a link (to a scratch disk); nothing below it may be.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from looprepro.files.errors import ConfigError, StoreError

SCHEMA = 1
"""Version of every JSON document here."""
ATTEMPT_NAME = re.compile(r"[0-9]{4,9}")
CHECKPOINT_NAME = re.compile(r"checkpoint-([0-9]{8})")
WEIGHTS_PATH = re.compile(r"attempts/[0-9]{4,9}/checkpoint-[0-9]{8}")
_NAME = re.compile(r"[^\W_][\w.=-]{0,199}")
_LINK_REMEDY = "Put a real file or folder there; only the runs folder itself may be a link"


@dataclass(frozen=True)
class Layout:
    """Paths under one runs folder. Creates and reads nothing."""

    root: Path

    @property
    def cells(self) -> Path:
        """Folder of all cells."""
        return self.root / "cells"

    def cell(self, cell_id: str) -> Path:
        """Folder of one cell; :class:`ConfigError` where the id could be read as a path."""
        return self.cells / checked_name(cell_id)

    def attempts(self, cell_id: str) -> Path:
        """Folder of a cell's attempts."""
        return self.cell(cell_id) / "attempts"

    def attempt(self, cell_id: str, number: int) -> Path:
        """Folder of one attempt of a cell."""
        return self.attempts(cell_id) / attempt_name(number)

    def reservation(self, cell_id: str, number: int) -> Path:
        """File of one reservation of a cell for a scheduler's job."""
        return self.cell(cell_id) / "queue" / f"{attempt_name(number)}.json"

    def evaluation(self, cell_id: str, evaluation_id: str) -> Path:
        """File of one evaluation."""
        return self.cell(cell_id) / "evaluations" / f"{checked_name(evaluation_id)}.json"

    def submission(self, cell_id: str, evaluation_id: str) -> Path:
        """File of the answers of one evaluation, where its benchmark has such files."""
        return self.cell(cell_id) / "submissions" / f"{checked_name(evaluation_id)}.json"

    def requests(self, scale: str) -> Path:
        """Folder of what was asked for at ``scale``."""
        return self.root / "requests" / checked_name(scale)

    @property
    def launches(self) -> Path:
        """Folder of the manifests and worker logs, one folder per command."""
        return self.root / "launches"

    def refuse_links(self, path: Path) -> None:
        """:class:`StoreError` where ``path`` or a folder between it and the root is a symbolic link."""
        current = self.root
        for part in path.relative_to(self.root).parts:
            current = current / part
            if current.is_symlink():
                raise StoreError(f"{current} is a symbolic link, which is not followed", _LINK_REMEDY)


def checked_name(name: str) -> str:
    """``name``, if it is one plain path component; else :class:`ConfigError`."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a folder of the store", "Use letters, digits, '-', '_', '.' and '='")
    return name


def attempt_numbers(folder: str | Path) -> list[int]:
    """Numbers of the attempts in an attempts folder, ascending. Links, files and half-made folders don't count."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                int(entry.name)
                for entry in entries
                if ATTEMPT_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []


def attempt_name(number: int) -> str:
    """``0001`` for 1."""
    return f"{number:04d}"


def read_bytes(path: str | Path) -> tuple[bytes, float] | None:
    """Content and modification time of a regular file; None where there is none. Links and devices: :class:`StoreError`."""
    try:
        # O_NONBLOCK: opening a FIFO that someone left here must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreError(f"{path} is a symbolic link, which is not followed", _LINK_REMEDY) from error
        raise StoreError(f"cannot read {path}: {error.strerror}", "Check the path and its permissions") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{path} is not a regular file", _LINK_REMEDY)
        size = status.st_size
        data = os.read(descriptor, size + 1)
        while len(data) < size:  # a signal or a network file system may give less at once
            more = os.read(descriptor, size - len(data))
            if not more:
                break
            data += more
        return data, status.st_mtime
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}", "Check the disk") from error
    finally:
        os.close(descriptor)


def read_document(path: str | Path) -> dict[str, Any] | None:
    """The JSON object in a file of ours; None where there is none; :class:`StoreError` where it is broken or another schema."""
    content = read_bytes(path)
    if content is None:
        return None
    remedy = "Move the file away and run the same command again"
    try:
        document = json.loads(content[0])
    except ValueError as error:
        raise StoreError(f"{path} is not whole: {error}", remedy) from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise StoreError(f"{path} is not a document of schema {SCHEMA}", remedy)
    return document
