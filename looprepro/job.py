"""One job of a batch system: the cells of a manifest side by side, a process each (or for each pack of cells that train as
one stack). ``python -m looprepro.job MANIFEST``

Training (torch) is imported once, before the fork and before any tensor or device exists, so that the processes share its
memory pages. Each child runs the worker on a manifest of its one cell or pack: own log, own attempt, own result, and a crash
costs its own cells only. This process just waits:

- a child killed by a signal leaves no word; its death is noted beside its attempt, and it is started again (the worker
  gives the cell up after ``tries`` attempts without progress);
- SIGUSR2 (time limit, preemption): all checkpoint, then the job is put back into the queue;
- SIGTERM (scancel, a requeue from outside): all checkpoint; the queue is the scheduler's business;
- a cell cancelled meanwhile is stopped (the others of its pack go on from their checkpoints), a submission that counts as
  refused does nothing.

The manifest is a worker's with ``submission`` (the folder of this submission), ``requeue`` and ``source`` (the hash of the
code that was submitted) in addition. Exit codes: 0 nothing is missing, 1 some cell failed, 2 other code or a collision,
130 interrupted.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from looprepro.files.errors import ConfigError, LoopreproError
from looprepro.files.json_files import read_json
from looprepro.files.places import project_root
from looprepro.store import Store
from looprepro.store.provenance import provenance, snapshot_state
from looprepro.store.submissions import is_called_off, record_death
from looprepro.training.place import place
from looprepro.worker import INTERRUPTED, run_manifest
from looprepro.worker_manifest import Manifest

POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""Between looks for cancelled cells, and between repeated signals to children that may have been forked in between."""
REQUEUE_SECONDS = 20.0
_SIGNALS = (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)


@dataclass
class _Child:
    pid: int
    cells: tuple[str, ...]
    """One, or those of a pack."""
    cancelled: frozenset[str] = frozenset()
    """Cells that it was stopped for."""


class Pack:
    """The processes of one job."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.manifest = Manifest.from_document(document)
        self.store = Store(self.manifest.store)
        self.submission = Path(document["submission"])
        self.signal: signal.Signals | None = None
        self.exit_codes: list[int] = [0]
        self._children: dict[int, _Child] = {}
        self._deaths: dict[tuple[str, ...], int] = {}

    def stop(self, number: int, _frame: FrameType | None = None) -> None:
        """Signal handler. A SIGTERM first means that somebody else decides what becomes of the job."""
        self.signal = self.signal or signal.Signals(number)

    def run(self) -> int:
        """Everything; the exit code."""
        for number in _SIGNALS:
            signal.signal(number, self.stop)
        check_source(self.document)
        _import_training(self.manifest.runner or "looprepro.training.run_pack")
        provenance()  # asked once, inherited by the children
        gc.freeze()  # a garbage collection in a child would write to, and so copy, every page of torch's objects
        for unit in self.manifest.units:
            cells = tuple(task.id for task in unit)
            for cell in sorted(self._called_off(cells)):
                print(f"{cell}: cancelled", flush=True)
            if self.signal is None and self._called_off(cells) < set(cells):
                self._start(cells)
        self._wait()
        unfinished = INTERRUPTED in self.exit_codes
        if self.signal is signal.SIGUSR2 and unfinished and self.document.get("requeue", True):
            requeue()
        return INTERRUPTED if unfinished else max(self.exit_codes)

    def _called_off(self, cells: Sequence[str]) -> frozenset[str]:
        return frozenset(cell for cell in cells if is_called_off(self.submission, cell))

    def _start(self, cells: tuple[str, ...]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                mine = [cell for cell in self.document["cells"] if cell["id"] in cells]
                code = run_manifest({**self.document, "cells": mine, "processes": len(self.manifest.units)}, parent=parent)
            except LoopreproError as error:
                print(f"{', '.join(cells)}: {error}", file=sys.stderr)
                code = error.exit_code
            except BaseException:  # noqa: BLE001 - nothing of the parent's may run in the child
                traceback.print_exc()
            finally:
                try:
                    sys.stdout.flush()
                    sys.stderr.flush()
                finally:
                    os._exit(code)
        # What is called off already, the child leaves alone.
        self._children[pid] = _Child(pid, cells, self._called_off(cells))

    def _wait(self) -> None:
        looked = signalled = 0.0
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                self._ended(self._children.pop(pid), os.waitstatus_to_exitcode(status))
                continue
            now = time.monotonic()
            if self.signal is not None and now - signalled >= LOOK_SECONDS:
                signalled = now
                for child in self._children.values():
                    os.kill(child.pid, self.signal)
            if now - looked >= LOOK_SECONDS:
                looked = now
                for child in self._children.values():
                    called_off = self._called_off(child.cells)
                    if called_off > child.cancelled or called_off == set(child.cells):
                        child.cancelled = called_off
                        os.kill(child.pid, signal.SIGTERM)
            time.sleep(POLL_SECONDS)

    def _ended(self, child: _Child, code: int) -> None:
        all_cancelled = child.cancelled == set(child.cells)
        if code == INTERRUPTED and child.cancelled and not all_cancelled and self.signal is None:
            self._start(child.cells)  # stopped for the cells of its pack that are not wanted any more
            return
        if code >= 0:
            self.exit_codes.append(0 if all_cancelled and code == INTERRUPTED else code)
            return
        name = signal.Signals(-code).name
        cause = f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        print(f"{', '.join(child.cells)}: the process {child.pid} was {cause}", file=sys.stderr, flush=True)
        for cell in child.cells:
            for attempt in self.store.reading(cell).attempts:
                if attempt.owner.get("pid") == child.pid and attempt.end is None and attempt.number > self._after(cell):
                    record_death(self.store.layout.attempt(cell, attempt.number), cause)
        self._deaths[child.cells] = self._deaths.get(child.cells, 0) + 1
        if self.signal is not None or all_cancelled:
            self.exit_codes.append(INTERRUPTED if not all_cancelled else 0)
        elif self._deaths[child.cells] > self.manifest.tries * 3:
            self.exit_codes.append(1)
        else:
            self._start(child.cells)

    def _after(self, cell_id: str) -> int:
        return next(task.after for task in self.manifest.tasks if task.id == cell_id)


def check_source(document: Mapping[str, Any]) -> None:
    """:class:`ConfigError` where this process runs other code than the one that was submitted."""
    wanted = document.get("source")
    project = project_root()
    state = snapshot_state(project)
    if wanted and (state is None or state[0]["source"] != wanted):
        raise ConfigError(
            f"the job runs the code in {project}, which is not the code that was submitted",
            "Remove what puts another looprepro first on the Python path (set-up lines, container)",
        )


def requeue() -> None:
    """Put this job back into the queue. The scheduler may have done it already; that is as good."""
    # slurmctld signals the whole step at once, and scontrol with it: it inherits that these are ignored.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{index}" if array and index else os.environ.get("SLURM_JOB_ID")
    if job is None:
        return
    try:
        done = subprocess.run(
            ["scontrol", "requeue", job], capture_output=True, text=True, timeout=REQUEUE_SECONDS, check=False
        )
        said = done.stderr.strip() or f"exit status {done.returncode}"
        succeeded = done.returncode == 0 or "pending execution" in said.lower()
    except (OSError, subprocess.TimeoutExpired) as error:
        said, succeeded = str(error), False
    what = "back in the queue" if succeeded else f"not requeued ({said}): run the same command again to go on"
    print(f"job {job}: {what}", file=sys.stderr, flush=True)


def _import_training(runner: str) -> None:
    """Children meet an ImportError themselves and end their cells with it."""
    try:
        importlib.import_module(runner.partition(":")[0])
    except ImportError as error:
        print(error, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of a job; see the module's docstring."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) != 1:
        print("usage: python -m looprepro.job MANIFEST", file=sys.stderr)
        return 2
    here = place()
    if here is not None and here.rank > 0:
        from looprepro.training.rank import follow

        return follow(here)
    try:
        return Pack(read_json(Path(given[0]))).run()
    except LoopreproError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
