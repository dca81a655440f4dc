"""Run one manifest of cells: claim, train, evaluate, say how it ended. ``python -m looprepro.worker MANIFEST``

What a manifest is: :mod:`looprepro.worker_manifest`. SIGTERM, SIGINT, SIGUSR2, SIGHUP and the death of ``--parent`` make the
running cells checkpoint and the worker leave. Started by torchrun or as several SLURM tasks, rank 0 does all this and the
others follow it (training/distributed.py).

Exit codes: 0 nothing is missing; 1 some cell failed or was given up; 2 a cell folder holds another configuration, or the
manifest is wrong; 130 interrupted, resumable.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from looprepro.files.errors import ConfigError, IdentityCollision, LoopreproError, StoreError
from looprepro.files.json_files import read_json
from looprepro.store import Attempt, Store, Superseded
from looprepro.store.provenance import Provenance, provenance
from looprepro.store.status import CellReading
from looprepro.store.submissions import is_called_off
from looprepro.training.place import place
from looprepro.worker_manifest import Manifest, Task
from looprepro.worker_output import is_deterministic, one_line, output_into
from looprepro.worker_pack import RunPack
from looprepro.worker_pack import attend as attend_pack

if TYPE_CHECKING:
    from looprepro.config.cell import Cell, Evaluation, Execution

RunCell = Callable[..., Any]
"""``run_cell(cell, evaluations, execution, attempt, stop) -> Outcome(status, step, reason)``."""
Verdict = Literal["finished", "failed", "lost", "held", "open"]
INTERRUPTED = 130
BEAT_SECONDS = 10.0
"""A heartbeat is due this often, whatever training does."""
POLL_SECONDS = 1.0
"""Between looks at the parent process, and at cells that others hold."""
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR2", "SIGHUP")


class Stop:
    """Why to stop, if so: the name of the first signal received (or ``parent died``)."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.event = threading.Event()

    def request(self, reason: str) -> None:
        """Ask for a checkpoint and the end; the first reason stays."""
        self.reason = self.reason or reason
        self.event.set()

    def __call__(self) -> str | None:
        return self.reason


class Worker:
    """Walks a manifest, starting at ``offset``. ``redirect``: each cell's output goes into its own log.txt."""

    def __init__(
        self,
        manifest: Manifest,
        stop: Stop,
        *,
        run_cell: RunCell | None = None,
        offset: int = 0,
        redirect: bool = True,
    ) -> None:
        self.manifest = manifest
        self.store = Store(manifest.store)
        self.stop = stop
        self.offset = offset
        self.redirect = redirect
        self.exit_code = 0
        self.unwritable = False
        self.current: list[Attempt] = []
        """What the heartbeat thread beats for."""
        self._run_cell = run_cell
        self._run_pack: RunPack | None = None
        self._provenances: dict[str, Provenance] = {}
        """By the device that is wanted: cells of one manifest may differ in it."""

    @property
    def leaving(self) -> bool:
        """Whether to begin nothing more."""
        return bool(self.stop()) or self.unwritable

    def run(self) -> int:
        """Work until everything is finished, given up, or (without ``wait``) held by others. Returns the exit code."""
        units = self.manifest.units
        start = self.offset % len(units) if units else 0
        left = [*units[start:], *units[:start]]
        while left and not self.stop():
            held = []
            for unit in left:
                if self.leaving:
                    break
                verdicts = self._attend_unit(unit)
                held.append(tuple(task for task in unit if verdicts[task.id] == "held"))
                if any(verdict in ("failed", "lost") for verdict in verdicts.values()):
                    self.exit_code = max(self.exit_code, 1)
            if self.unwritable or not self.manifest.wait:
                break  # whoever holds the rest answers for it
            left = [unit for unit in held if unit]
            if left:
                self.stop.event.wait(POLL_SECONDS)
        return INTERRUPTED if self.stop() else self.exit_code

    def _attend_unit(self, unit: Sequence[Task]) -> dict[str, Verdict]:
        if len(unit) > 1:
            self._load_runner()
            if self._run_pack is not None:
                return attend_pack(self, unit, self._run_pack)
        return {task.id: "held" if self.leaving else self.attend(task) for task in unit}

    def attend(self, task: Task) -> Verdict:
        """Do what is missing of one cell; where it stands then."""
        verdict = self.standing(task)
        if verdict != "open":
            return verdict
        attempt = self.claim(task)
        if not isinstance(attempt, Attempt):
            return attempt
        self.execute(task, attempt)
        return self.verdict_after(task, attempt)

    def standing(self, task: Task) -> Verdict:
        """:meth:`judge`; a cell that was cancelled is finished, and one lost too often is ended in a batch system's job."""
        if self._called_off(task):
            return "finished"
        verdict = self.judge(task)
        if verdict == "lost" and self.manifest.submission is not None:
            return self._give_up(task)
        return verdict

    def claim(self, task: Task, extra: Mapping[str, Any] | None = None) -> Attempt | Verdict:
        """Hold a cell: its attempt, whose provenance has ``extra``; or ``held`` by somebody else, or ``failed``."""
        try:
            self._load_runner()
            self.store.register(task.id, task.config)
            attempt = self.store.claim(
                task.id,
                needed=lambda: self.judge(task, owned_by_nobody=True) == "open" and not self._called_off(task),
                contents=self._contents(task, extra),
                beat_seconds=self.manifest.beat_seconds,
            )
        except LoopreproError as error:
            return self._refused(task, error)
        if attempt is None:
            return "held"
        attempt.devices = self._devices(task)
        return attempt

    def _refused(self, task: Task, error: LoopreproError) -> Verdict:
        """The store does not take a cell. Nothing of it can be written, so its cause can only be said here."""
        print(f"{task.id}: {error}", file=sys.stderr, flush=True)
        self.exit_code = max(self.exit_code, error.exit_code if isinstance(error, IdentityCollision) else 1)
        return "failed"

    def verdict_after(self, task: Task, attempt: Attempt) -> Verdict:
        """Where a cell stands after its attempt was run."""
        if not attempt.ended:
            # The disk takes not even the few bytes of an end. Leave: a process that is gone holds nothing.
            self.unwritable = True
            return "failed"
        return "finished" if self.stop() else self.judge(task)

    def judge(self, task: Task, *, owned_by_nobody: bool = False) -> Verdict:
        """Where a cell stands for this command. ``owned_by_nobody``: the caller knows that no live process holds it."""
        reading = self.store.reading(task.id)
        if reading.presence.complete(name for name, _ in task.evaluations):
            return "finished"
        highest = reading.highest
        if highest is None:
            return "open"
        if highest.status == "running" and not owned_by_nobody and not self.store.is_free(task.id):
            return "held"
        if highest.status == "failed" and highest.number > task.after:
            return "failed"
        return "lost" if reading.fruitless(task.after) >= self.manifest.tries else "open"

    def _called_off(self, task: Task) -> bool:
        return self.manifest.submission is not None and is_called_off(self.manifest.submission, task.id)

    def _give_up(self, task: Task) -> Verdict:
        """End a cell as failed whose attempts were lost too often: claimed once more, only to say so."""
        try:
            attempt = self.store.claim(
                task.id,
                needed=lambda: self.judge(task, owned_by_nobody=True) == "lost",
                contents=self._contents(task),
            )
            if attempt is None:
                return "held"
            earlier = self.store.reading(task.id).attempts[:-1]
            step = max(one.step for one in earlier)
            cause = f"{self.manifest.tries} attempts in a row without progress, at step {step}: {earlier[-1].cause}"
            attempt.end("failed", cause, step)
        except LoopreproError as error:
            return self._refused(task, error)
        return "failed"

    def _missing(self, task: Task, reading: CellReading) -> list[tuple[str, Mapping[str, Any]]]:
        return [(name, wanted) for name, wanted in task.evaluations if name not in reading.evaluations]

    def execute(self, task: Task, attempt: Attempt) -> None:
        """Run a claimed cell and write its end, if the disk takes it. Raises nothing."""
        if attempt not in self.current:
            self.current.append(attempt)
        try:
            with output_into(*self.logs([attempt])):
                try:
                    print(f"cell {task.id}, attempt {attempt.number}, {time.strftime('%Y-%m-%d %H:%M:%S')}", flush=True)
                    outcome = self._call(task, attempt)
                    self._end(task, attempt, outcome)
                except (Exception, SystemExit) as error:  # noqa: BLE001 - one cell's failure of any kind must not stop the others
                    # First the end, on its reserved bytes, then the long text: the disk may be full.
                    self.fail(attempt, error)
                    if not isinstance(error, Superseded):
                        traceback.print_exc(file=sys.stdout)
                        sys.stdout.flush()
        except (OSError, LoopreproError) as error:
            print(f"{task.id}: attempt {attempt.number}: {error}", file=sys.stderr, flush=True)
        finally:
            self.current.remove(attempt)

    def logs(self, attempts: Sequence[Attempt]) -> list[Path]:
        """Where the output of these attempts goes; nowhere else but the terminal where it is not redirected."""
        return [attempt.path / "log.txt" for attempt in attempts] if self.redirect else []

    def fail(self, attempt: Attempt, error: BaseException, hint: str = "") -> None:
        """Write the end of an attempt that an error ended."""
        if isinstance(error, Superseded):
            print(error, flush=True)
            attempt.end("superseded", str(error))
        else:
            attempt.end("failed", one_line(error) + hint, deterministic=is_deterministic(error, attempt))

    def interrupted(self, attempt: Attempt, outcome: Any) -> None:
        """Write the end of an attempt that a signal ended."""
        attempt.end("interrupted", f"interrupted by {self.stop() or outcome.reason}", outcome.step)

    def parsed(self, task: Task) -> tuple[Cell, Execution, list[tuple[str, Evaluation]]]:
        """A task's cell, its execution, and the evaluations that are missing. :class:`ConfigError` where it is not valid."""
        from pydantic import ValidationError

        from looprepro.config.cell import Cell, Execution, parse_evaluation
        from looprepro.config.identity import cell_id

        try:
            cell = Cell.model_validate(task.config)
            execution = Execution.model_validate(task.execution)
            missing = self._missing(task, self.store.reading(task.id))
            evaluations = [(name, parse_evaluation(e)) for name, e in missing]
        except ValidationError as error:
            raise ConfigError(f"cell {task.id} is not valid: {error}") from error
        if cell_id(cell) != task.id:
            raise ConfigError(
                f"cell {task.id} hashes to {cell_id(cell)} in this version of the code",
                "Expand the sweep again with the code that runs it",
            )
        return cell, execution, evaluations

    def _call(self, task: Task, attempt: Attempt) -> Any:
        cell, execution, evaluations = self.parsed(task)
        assert self._run_cell is not None
        began = time.monotonic()
        try:
            return self._run_cell(cell, evaluations, execution, attempt, self.stop)
        finally:
            if attempt.device_seconds is not None:  # of a pack: its share of the training, and now the evaluation
                attempt.device_seconds += attempt.devices * (time.monotonic() - began)

    def _end(self, task: Task, attempt: Attempt, outcome: Any) -> None:
        if outcome.status == "stopped":
            self.interrupted(attempt, outcome)
            return
        reading = self.store.reading(task.id)
        if reading.result is None:
            raise StoreError(f"training of {task.id} ended as {outcome.status} without a result that can be trusted")
        missing = [name for name, _ in self._missing(task, reading)]
        if outcome.status == "done" and missing:
            raise StoreError(f"cell {task.id} is trained, but {', '.join(missing)} not evaluated")
        attempt.end(outcome.status, str(outcome.reason or ""), outcome.step)

    def _load_runner(self) -> None:
        """Import training once, before the first claim: a hold of seconds that trains nothing helps nobody."""
        if self._run_cell is not None:
            return
        module, _, function = (self.manifest.runner or "looprepro.training.run:run_cell").partition(":")
        try:
            self._run_cell = getattr(importlib.import_module(module), function)
            if self.manifest.packs and self.manifest.runner is None:
                self._run_pack = importlib.import_module("looprepro.training.run_pack").run_pack
        except ImportError as error:
            self._run_cell = _raiser(error)

    def _devices(self, task: Task) -> float:
        """What an attempt of ``task`` holds: a device per rank, or its part of a GPU. A CPU is counted in processes."""
        ranks = int(task.execution.get("ranks", 1))
        shares_gpu = ranks == 1 and "cuda" in self._provenance(task).extra
        return 1.0 / self.manifest.processes if shares_gpu else float(ranks)

    def _contents(self, task: Task, extra: Mapping[str, Any] | None = None) -> dict[str, bytes]:
        found = self._provenance(task)
        settings = {key: task.execution.get(key) for key in ("threads", "compile", "tf32")}
        if task.execution.get("micro_batch") is not None:
            settings["micro_batch"] = task.execution["micro_batch"]
        dtype = task.config.get("training", {}).get("dtype")
        known = {**found.extra, **settings, "dtype": dtype, "seed": task.config.get("seed"), **(extra or {})}
        return replace(found, extra=known).contents()

    def _provenance(self, task: Task) -> Provenance:
        wanted = str(task.execution.get("device", "auto"))
        if wanted not in self._provenances:
            self._provenances[wanted] = provenance(**_device(wanted))
        return self._provenances[wanted]


def run_manifest(
    document: Mapping[str, Any],
    *,
    run_cell: RunCell | None = None,
    stop: Stop | None = None,
    offset: int = 0,
    parent: int | None = None,
    redirect: bool = True,
) -> int:
    """Run a manifest in this process and return its exit code. ``run_cell`` replaces training (tests).

    In the main thread the signals of :data:`SIGNALS` are caught meanwhile, and their handlers put back afterwards.
    """
    stop = stop or Stop()
    worker = Worker(Manifest.from_document(document), stop, run_cell=run_cell, offset=offset, redirect=redirect)
    finished = threading.Event()
    watcher = threading.Thread(target=_watch, args=(worker, stop, parent, finished), name="heartbeat", daemon=True)
    with _signals_into(stop):
        watcher.start()
        try:
            return worker.run()
        finally:
            finished.set()
            watcher.join()
            if place() is not None:
                from looprepro.training.distributed import dismiss

                dismiss()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of a worker; see the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m looprepro.worker", description="Run one manifest of cells.")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--offset", type=int, default=0, help="cell to begin with; workers of one manifest begin apart")
    parser.add_argument("--parent", type=int, help="process id of the launcher: stop when it is gone")
    given = parser.parse_args(arguments)
    here = place()
    if here is not None and here.rank > 0:
        from looprepro.training.rank import follow

        return follow(here)
    try:
        return run_manifest(read_json(given.manifest), offset=given.offset, parent=given.parent)
    except LoopreproError as error:
        print(error, file=sys.stderr, flush=True)
        return error.exit_code


def _watch(worker: Worker, stop: Stop, parent: int | None, finished: threading.Event) -> None:
    last = time.monotonic()
    while not finished.wait(POLL_SECONDS):
        if parent is not None and os.getppid() != parent:
            stop.request("parent died")
        if time.monotonic() - last >= BEAT_SECONDS:
            last = time.monotonic()
            for attempt in list(worker.current):
                attempt.touch()


@contextmanager
def _signals_into(stop: Stop) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}
    for name in SIGNALS:
        number = getattr(signal, name)
        if name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        before[number] = signal.signal(number, lambda received, _frame: stop.request(signal.Signals(received).name))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raiser(error: ImportError) -> RunCell:
    def run_cell(*_: Any) -> Any:
        raise error

    return run_cell


def _device(wanted: str) -> dict[str, Any]:
    """The accelerator that training will use; nothing where it is the CPU (which provenance names by itself)."""
    torch = sys.modules.get("torch")  # loaded by training, or not at all in tests
    if torch is None or wanted == "cpu" or not torch.cuda.is_available():
        return {}
    import subprocess

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=False, timeout=20).stdout.split("\n")[0]
    except (OSError, subprocess.TimeoutExpired):
        driver = ""
    return {"device": torch.cuda.get_device_name(0), "driver": driver, "cuda": torch.version.cuda}


if __name__ == "__main__":
    sys.exit(main())
