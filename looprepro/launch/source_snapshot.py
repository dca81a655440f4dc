"""The code as it is at submission: copied into the runs folder, named by its hash, run from there.

A queued job would otherwise run whatever the tree holds when it starts.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from looprepro.files.atomic import write_bytes
from looprepro.files.json_files import canonical_json, pretty_json
from looprepro.files.places import checkout, project_root
from looprepro.planning.operators import operator_files
from looprepro.store.provenance import SOURCE_FILE, WATCHED, source_state

_PASSED_OVER = ("__pycache__",)


@dataclass(frozen=True)
class Source:
    """Files of the source by their path in the project, read once, so that what is hashed is what is copied."""

    files: dict[str, bytes]
    state: dict[str, Any]
    """Commit, whether anything was changed, which files."""
    diff: str

    @property
    def hash(self) -> str:
        """Over every path and content."""
        listing = {path: hashlib.sha256(data).hexdigest() for path, data in sorted(self.files.items())}
        return hashlib.sha256(canonical_json(listing).encode("utf-8")).hexdigest()

    @property
    def short(self) -> str:
        """The folder's name."""
        return self.hash[:16]

    def write(self, folder: Path) -> None:
        """Fill an empty folder; the files are read-only afterwards."""
        documents = {SOURCE_FILE: pretty_json({"schema": 1, **self.state, "source": self.hash}).encode("utf-8")}
        if self.diff:
            documents["changes.diff"] = self.diff.encode("utf-8", "surrogateescape")
        for path, data in {**self.files, **documents}.items():
            write_bytes(folder / path, data, durable=False)  # who names the folder syncs all of it
            os.chmod(folder / path, 0o444 & ~_umask())


def read_source(operators: Iterable[str] = ()) -> Source:
    """The source of this process: the package, and beside it in a checkout sweeps, pyproject.toml and constraints.txt.

    ``operators``: users' own ("package.module:Class"), whose modules are copied as well.
    """
    project = project_root()
    files: dict[str, bytes] = {}
    for name in WATCHED if checkout() else ("looprepro",):
        _read_into(files, project, project / name)
    for operator in sorted(set(operators)):
        files |= {path: file.read_bytes() for path, file in operator_files(operator).items()}
    state, diff = source_state(project)
    return Source(files, state, diff)


def _read_into(files: dict[str, bytes], project: Path, path: Path) -> None:
    if path.name in _PASSED_OVER or path.name.startswith("."):
        return
    if path.is_dir():
        for entry in sorted(path.iterdir()):
            _read_into(files, project, entry)
    elif path.is_file():
        files[path.relative_to(project).as_posix()] = path.read_bytes()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
