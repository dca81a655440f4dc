"""Run cells in worker processes of this machine, each kept for many cells (importing torch takes seconds).

All workers walk one manifest; the store's claims keep them apart, and apart from workers of other commands. Where estimates
are known the longest cells come first, so that the last minutes do not run on one core; else each walks from another place.
Nothing is lost with this process: a worker that misses its launcher checkpoints and leaves.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import FrameType

from looprepro.files.json_files import write_json
from looprepro.files.places import project_root
from looprepro.launch.base import Progress, Watch, Work, available_cores, manifest_of, thread_environment, units_of
from looprepro.store import Store

INTERRUPTED = 130
NORMAL_ENDS = (0, 1, 2, INTERRUPTED)
"""Exit codes with which a worker leaves on its own."""
BARREN_DEATHS = 3
"""Workers that may die before they hold a cell: then starting more is no use."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class _Process:
    popen: subprocess.Popen[bytes]
    slot: int
    log: Path
    reaped: bool = False


@dataclass
class LocalExecutor:
    """``jobs`` cells, or packs of them, at once (default: as many as cores and threads per cell allow; more is lowered)."""

    jobs: int | None = None
    poll_seconds: float = 0.5
    tries: int = 3
    """Workers that may die on one cell, without getting further in steps, before the cell is left as lost."""
    grace_seconds: float = 300.0
    """For checkpoints after an interrupt whose second signal never comes (the caller stopped listening)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the workers' environment."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Added to the manifest (tests)."""
    hours: Mapping[str, float | None] = field(default_factory=dict)
    """Estimated device hours by cell."""
    _interrupts: int = 0

    def interrupt(self) -> None:
        """As Ctrl-C: the first lets workers checkpoint, the second kills them (their last checkpoint stays)."""
        self._interrupts += 1

    def jobs_for(self, threads: int, cells: int) -> tuple[int, str]:
        """(workers to start, a message where fewer than asked for)."""
        fitting = max(1, available_cores() // threads)
        wanted = self.jobs or fitting
        message = ""
        if wanted > fitting:
            message = f"jobs lowered from {wanted} to {fitting}: {available_cores()} cores, {threads} threads per cell"
        return max(1, min(wanted, fitting, cells)), message

    def run(self, store: Store, work: Sequence[Work]) -> Iterator[Progress]:
        """Run everything; see :class:`looprepro.launch.base.Executor`. Cells that others hold are waited for."""
        store.verify((item.id, item.config) for item in work)
        watch = Watch(store, work)
        progress = watch.look()
        if len(progress.complete) == len(progress.presence):
            yield replace(progress, finished=True)
            return
        self._interrupts = 0
        exit_codes = [0]
        # Threads are fixed when a process starts, so cells with other numbers of threads get other processes.
        ordered = sorted(self._longest_first(work), key=_resources)
        with self._caught_signals():
            for (threads, ranks), group in groupby(ordered, key=_resources):
                if not self._interrupts:
                    yield from self._run_group(store, list(group), threads, ranks, watch, exit_codes)
        progress = watch.look()
        complete = len(progress.complete) == len(progress.presence)
        exit_code = INTERRUPTED if self._interrupts else max(*exit_codes, 0 if complete else 1)
        yield replace(progress, finished=True, exit_code=exit_code)

    def _longest_first(self, work: Sequence[Work]) -> list[Work]:
        """Packs and single cells by their hours, equal ones as they come; all as they come where any estimate is unknown."""
        units = units_of(work)
        if self._estimated(work):
            units.sort(key=lambda unit: -sum(self.hours[item.id] or 0.0 for item in unit))
        return [item for unit in units for item in unit]

    def _estimated(self, work: Sequence[Work]) -> bool:
        return all(self.hours.get(item.id) is not None for item in work)

    def _run_group(
        self, store: Store, work: list[Work], threads: int, ranks: int, watch: Watch, exit_codes: list[int]
    ) -> Iterator[Progress]:
        folder = store.new_launch()
        units = len(units_of(work))
        jobs, message = self.jobs_for(threads * ranks, units)
        settings = {"wait": True, "tries": self.tries, "processes": jobs, **self.settings}
        write_json(folder / "manifest.json", manifest_of(store, work, watch.after, **settings))
        # Workers begin apart, or with estimates all at the longest.
        estimated = self._estimated(work)
        offsets = [0 if estimated else slot * units // jobs for slot in range(jobs)]
        messages = [message] if message else []
        processes: list[_Process] = []
        barren = forwarded = 0
        try:
            for slot in range(jobs):
                processes.append(self._start(folder, slot, offsets[slot], threads))
            while any(not process.reaped for process in processes):
                self._wait(processes)
                if self._interrupts > forwarded:
                    forwarded = self._interrupts
                    self._forward(processes, kill=forwarded > 1)
                    messages.append("killed" if forwarded > 1 else "stopping after a checkpoint (again to stop at once)")
                for process in list(processes):
                    code = process.popen.poll()
                    if process.reaped or code is None:
                        continue
                    process.reaped = True
                    if code in NORMAL_ENDS:
                        if code != INTERRUPTED or not self._interrupts:
                            exit_codes.append(code)
                        if code in (1, 2):
                            messages += _last_lines(process.log)
                        continue
                    if self._interrupts:
                        continue  # stopped before it could listen, or killed as asked
                    cell, worked = watch.traces_of(process.popen.pid)
                    messages.append(_obituary(process, code, cell))
                    if not worked:
                        barren += 1
                        messages += _last_lines(process.log)
                    if barren < BARREN_DEATHS:
                        processes.append(self._start(folder, process.slot, offsets[process.slot], threads))
                yield replace(watch.look(), messages=tuple(messages))
                messages = []
        finally:
            self._finish(processes)
        if all(process.popen.returncode == 0 for process in processes):
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, folder: Path, slot: int, offset: int, threads: int) -> _Process:
        log = folder / f"worker-{slot}.log"
        package = str(project_root())
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, **thread_environment(threads), "PYTHONPATH": path, **self.environment}
        command = [sys.executable, "-m", "looprepro.worker", str(folder / "manifest.json")]
        command += ["--offset", str(offset), "--parent", str(os.getpid())]
        with open(log, "ab") as output:
            # Its own process group: the terminal's Ctrl-C reaches us alone, and we pass it on once.
            popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, process_group=0
            )
        return _Process(popen, slot, log)

    def _wait(self, processes: Sequence[_Process]) -> None:
        """Until the next look is due, a worker ends, or a signal comes."""
        until = time.monotonic() + self.poll_seconds
        interrupts = self._interrupts
        while time.monotonic() < until and self._interrupts == interrupts:
            if any(process.popen.poll() is not None for process in processes if not process.reaped):
                return
            time.sleep(0.02)

    def _forward(self, processes: Sequence[_Process], *, kill: bool) -> None:
        for process in processes:
            if process.popen.poll() is not None:
                continue
            if kill:
                os.killpg(process.popen.pid, signal.SIGKILL)
            else:
                process.popen.send_signal(signal.SIGTERM)

    def _finish(self, processes: Sequence[_Process]) -> None:
        """Leave no worker behind, also when the caller failed or stopped listening."""
        running = [process for process in processes if process.popen.poll() is None]
        self._forward(running, kill=False)
        until = time.monotonic() + self.grace_seconds
        for process in running:
            while process.popen.poll() is None and time.monotonic() < until and self._interrupts < 2:
                time.sleep(0.05)
        self._forward(running, kill=True)
        for process in running:
            process.popen.wait()

    @contextmanager
    def _caught_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # the caller uses interrupt()
            return

        def handle(_number: int, _frame: FrameType | None) -> None:
            self.interrupt()

        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number, handler in before.items():
            if not (number == signal.SIGHUP and handler is signal.SIG_IGN):  # nohup stays nohup
                signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _resources(item: Work) -> tuple[int, int]:
    """(threads of each process, processes) of a cell."""
    return item.execution.threads, item.execution.ranks


def _obituary(process: _Process, code: int, cell: str | None) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    where = f"while it held {cell}" if cell else "while it held no cell"
    return f"worker {process.slot} (process {process.popen.pid}) {how}{hint} {where}"


def _last_lines(log: Path, count: int = 5) -> list[str]:
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
