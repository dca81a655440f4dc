"""Write a file so that a reader sees the old content or the new one, never a part.

The only place that writes files of ours. Every function turns an ``OSError`` (full disk, no permission) into a
:class:`StoreError` that names the path and the remedy, and removes its temporary file.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from looprepro.files.errors import StoreError

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free space (looprepro gc lists what could go) and run the same command again",
    errno.EDQUOT: "The quota is used up: free space (looprepro gc lists what could go) and run the same command again",
    errno.EACCES: "Make the folder writable, or choose another one with --runs or --results",
    errno.EPERM: "Make the folder writable, or choose another one with --runs or --results",
    errno.EROFS: "The file system is read-only: choose another folder with --runs or --results",
}


@contextmanager
def explained(path: Path, action: str = "write") -> Iterator[None]:
    """Turn an ``OSError`` about ``path`` into a :class:`StoreError` with its remedy."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "Check the path and run the same command again")
        raise StoreError(f"cannot {action} {path}: {error.strerror or error}", remedy) from error


def fsync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable (ignored where a file system refuses to sync folders)."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A sibling of ``path`` that no other writer uses; starts with a dot so that listings skip it."""
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")


def write_with(path: Path, writer: Callable[[Path], None], *, durable: bool = True) -> None:
    """Let ``writer`` fill a temporary sibling of ``path``, then rename it into place.

    ``durable`` syncs file and folder: what is renamed survives a power cut. Raises :class:`StoreError`.
    """
    path = Path(path)
    temporary = temporary_name(path)
    with explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            writer(temporary)
            if durable:
                with open(temporary, "rb") as written:
                    os.fsync(written.fileno())
            os.replace(temporary, path)
            if durable:
                fsync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` atomically."""
    write_with(path, lambda temporary: _write(temporary, data), durable=durable)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace ``path`` by ``text`` (UTF-8, newlines as they are) atomically."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def create_exclusive(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data``; False, and nothing changed, where it exists already.

    The content appears together with the name (a hard link to a finished temporary), so no reader sees an empty file.
    """
    path = Path(path)
    temporary = temporary_name(path)
    with explained(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(temporary, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            return True
        finally:
            temporary.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def create_folder_with(path: Path, writer: Callable[[Path], None]) -> None:
    """Let ``writer`` fill a temporary sibling folder, sync every file and folder below it, then rename it to ``path``.

    ``path`` must not exist as a non-empty folder: what has a name is finished and never changes. Raises :class:`StoreError`.
    """
    path = Path(path)
    temporary = temporary_name(path)
    with explained(path):
        try:
            temporary.mkdir(parents=True)
            writer(temporary)
            for folder, _, files in os.walk(temporary, topdown=False):
                for file in files:
                    with open(Path(folder, file), "rb") as written:
                        os.fsync(written.fileno())
                fsync_folder(Path(folder))
            os.rename(temporary, path)
            fsync_folder(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
