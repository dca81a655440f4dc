"""Where the output of a cell, or of the cells of a pack, goes while a worker runs it, and how its failure is told."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO

from looprepro.files.errors import ConfigError, LoopreproError
from looprepro.store import Attempt

OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")


class Logs(io.TextIOBase):
    """Text that goes into several log files, line by line, until one is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[Path, TextIO] = {}

    def add(self, path: Path) -> int:
        """Open one more; its file descriptor."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        # Line by line, so that a killed cell's log is there up to the end, and a full disk shows where it is met.
        self.files[path] = os.fdopen(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
        return descriptor

    def write(self, text: str) -> int:
        """``text`` into every open file."""
        for file in self.files.values():
            file.write(text)
        return len(text)

    def flush(self) -> None:
        """Every open file."""
        for file in self.files.values():
            file.flush()

    def leave(self, path: Path) -> None:
        """Write no more into ``path``."""
        file = self.files.pop(path, None)
        if file is not None:
            file.close()


@contextmanager
def output_into(*paths: Path) -> Iterator[Logs]:
    """Python's streams into all ``paths``; the file descriptors 1 and 2 below them, so that libraries and child processes
    follow too, into the first. Without a path nothing changes."""
    logs = Logs()
    if not paths:
        yield logs
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = (os.dup(1), os.dup(2))
    try:
        first, *_ = [logs.add(path) for path in paths]
        os.dup2(first, 1)
        os.dup2(first, 2)
        with redirect_stdout(logs), redirect_stderr(logs):
            try:
                yield logs
            finally:
                for path in list(logs.files):
                    try:
                        logs.leave(path)
                    except OSError as error:  # the text is lost, the cell is not
                        os.write(kept[1], f"{path}: {error}\n".encode())
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        os.close(kept[0])
        os.close(kept[1])


def one_line(error: BaseException) -> str:
    """The cause of an end."""
    text = " ".join(str(error).split())
    if isinstance(error, LoopreproError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or off it."""
    return type(error).__name__ in OUT_OF_MEMORY or "can't allocate memory" in str(error)


def is_deterministic(error: BaseException, attempt: Attempt) -> bool:
    """Whether the same command would fail the same way: the request, the installation, or too little memory from the start."""
    if isinstance(error, (ConfigError, ImportError)):
        return True
    return is_out_of_memory(error) and attempt.step == 0
