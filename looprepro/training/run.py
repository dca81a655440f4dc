"""One cell from wherever it stands to its numbers: resume, train, publish, evaluate, inside an attempt of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from looprepro.config.cell import Cell, Evaluation, Execution, check_execution
from looprepro.files.errors import ConfigError, StoreError
from looprepro.models import kernels
from looprepro.native.memory import keep_freed_memory
from looprepro.store.attempt import Attempt
from looprepro.store.results import weights_folder
from looprepro.training import checkpoint
from looprepro.training.families import Diverged, family
from looprepro.training.recorder import Recorder


@dataclass(frozen=True)
class Outcome:
    """How an attempt left its cell."""

    status: Literal["done", "diverged", "stopped"]
    step: int
    reason: str = ""
    """Why it diverged, or the signal that stopped it."""


def run_cell(
    cell: Cell,
    evaluations: Sequence[tuple[str, Evaluation]],
    execution: Execution,
    attempt: Attempt,
    stop: Callable[[], str | None],
) -> Outcome:
    """Train ``cell`` unless it has a result, then do the ``evaluations`` that it lacks.

    ``stop`` is asked before every step: on a signal's name a checkpoint is written and the outcome is ``stopped``.
    Raises :class:`StoreError` where files cannot be written, :class:`ConfigError` where the cell cannot be built, and
    :class:`looprepro.store.attempt.Superseded` where another attempt took the cell over.
    """
    device = prepare(execution)
    result = attempt.result()
    weights = weights_folder(attempt.cell_path, result)
    if result is None or (result["status"] == "done" and evaluations and weights is None):
        # The second case: asked to train again, since a measurement is missing and the weights are gone.
        outcome = _train(cell, execution, device, attempt, stop)
        if outcome.status == "stopped":
            return outcome
        result = attempt.result()
        if result is None:
            raise StoreError(f"the result of {attempt.cell_id} cannot be read back", "Run the same command again")
        weights = weights_folder(attempt.cell_path, result)
    if result["status"] == "diverged":
        return Outcome("diverged", int(result["step"]), str(result.get("reason", "")))
    if evaluations:
        if weights is None:
            raise StoreError(f"the weights of {attempt.cell_id} are gone", "Train again with --retrain")
        measured = family(cell).evaluate(cell, _whole(weights), [wanted for _, wanted in evaluations], device)
        for evaluation_id, wanted in evaluations:
            attempt.write_evaluation(evaluation_id, measured[wanted])
    return Outcome("done", int(result["step"]))


def measured_again(cell: Cell, evaluation: Evaluation, execution: Execution, weights: Path) -> dict[str, Any]:
    """What one evaluation of trained weights (a checkpoint folder) says; nothing is kept."""
    device = prepare(execution)
    return family(cell).evaluate(cell, _whole(weights), [evaluation], device)[evaluation]


def prepare(execution: Execution) -> torch.device:
    """Set threads and determinism for this process and choose the device. :class:`ConfigError` where it is missing."""
    torch.set_num_threads(execution.threads)
    name = execution.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "this scale wants a CUDA device and PyTorch finds none here",
            "Run it on a GPU machine, through --executor slurm, or with --device cpu",
        )
    kernels.prefer(execution.kernels)
    if name == "cpu":
        torch.use_deterministic_algorithms(True)
        # It also fills every new tensor with NaN, which shows reads of what nobody wrote and takes 3 percent of a step.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        keep_freed_memory()
    else:
        torch.backends.cuda.matmul.allow_tf32 = execution.tf32
    return torch.device(name)


def _whole(folder: Path) -> checkpoint.Checkpoint:
    try:
        return checkpoint.load(folder)
    except StoreError as error:
        raise StoreError(
            f"the trained weights cannot be used: {error.message}",
            f"Remove {folder} and train again: looprepro sweep ... --retrain; numbers measured before stay",
        ) from error


def _train(cell: Cell, execution: Execution, device: torch.device, attempt: Attempt, stop: Callable[[], str | None]) -> Outcome:
    if execution.ranks > 1 and family(cell).follower is None:
        raise ConfigError(f"cells of {cell.task.kind} train in one process, not {execution.ranks}", "Set execution.ranks to 1")
    check_execution(cell, execution)
    recorder = Recorder(cell, attempt, execution, device)
    # A trainer over several processes is a context: they are gone, or free, after it.
    trainer = recorder.trainer
    with trainer if isinstance(trainer, AbstractContextManager) else nullcontext():
        recorder.resume(checkpoint.load_newest(attempt.checkpoint_folders()))
        return finish(recorder, stop)


def finish(recorder: Recorder, stop: Callable[[], str | None]) -> Outcome:
    """Train one cell from where its trainer stands to its result, or to the first signal."""
    try:
        return _finish(recorder, stop)
    except Diverged as diverged:  # at a step, or found when a checkpoint was due: then the one kept is older
        recorder.diverged(diverged)
        return Outcome("diverged", diverged.step, diverged.reason)


def _finish(recorder: Recorder, stop: Callable[[], str | None]) -> Outcome:
    trainer = recorder.trainer
    while trainer.step < trainer.total:
        signal = stop()
        if signal:
            recorder.save()
            return Outcome("stopped", trainer.step, signal)
        recorder.warm_up()
        began = time.monotonic()
        report = trainer.train_step()
        elapsed = time.monotonic() - began
        recorder.spent(elapsed)
        recorder.log(report)
        if recorder.is_checkpoint_due(report.step):
            recorder.save()
    recorder.done()
    return Outcome("done", trainer.total)
