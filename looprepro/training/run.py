"""One cell from wherever it stands to its numbers: resume, train, publish, evaluate, inside an attempt of the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from looprepro.config.cell import Cell, Evaluation, Execution
from looprepro.files.atomic import explained
from looprepro.files.errors import ConfigError, StoreError
from looprepro.files.json_files import canonical_json, write_json
from looprepro.store.attempt import Attempt
from looprepro.training import checkpoint
from looprepro.training.families import Diverged, Report, family, run_steps


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
    weights = _weights(attempt, result)
    if result is None or (result["status"] == "done" and evaluations and weights is None):
        # The second case: asked to train again, since a measurement is missing and the weights are gone.
        outcome = _train(cell, execution, device, attempt, stop)
        if outcome.status == "stopped":
            return outcome
        result = attempt.result()
        if result is None:
            raise StoreError(f"the result of {attempt.cell_id} cannot be read back", "Run the same command again")
        weights = _weights(attempt, result)
    if result["status"] == "diverged":
        return Outcome("diverged", int(result["step"]), str(result.get("reason", "")))
    if evaluations:
        if weights is None:
            raise StoreError(f"the weights of {attempt.cell_id} are gone", "Train again with --retrain")
        measured = family(cell).evaluate(cell, _whole(weights), [wanted for _, wanted in evaluations], device)
        for evaluation_id, wanted in evaluations:
            attempt.write_evaluation(evaluation_id, measured[wanted])
    return Outcome("done", int(result["step"]))


def _weights(attempt: Attempt, result: Mapping[str, Any] | None) -> Path | None:
    """The checkpoint that the result names; where it is gone, a newer attempt's of the same last step; else None."""
    if result is None or result["status"] != "done":
        return None
    named = attempt.cell_path / str(result["weights"])
    others = (f for f in attempt.checkpoint_folders() if f.name == named.name)
    return named if named.is_dir() else next(others, None)


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
    if name == "cpu":
        torch.use_deterministic_algorithms(True)
    return torch.device(name)


def _whole(folder: Path) -> checkpoint.Checkpoint:
    try:
        return checkpoint.load(folder)
    except StoreError as error:
        raise StoreError(
            f"the trained weights cannot be used: {error.message}",
            f"Remove {folder} and run the same command with --retrain; numbers measured before stay",
        ) from error


def _train(cell: Cell, execution: Execution, device: torch.device, attempt: Attempt, stop: Callable[[], str | None]) -> Outcome:
    trainer = family(cell).trainer(cell, execution, device)
    found = checkpoint.load_newest(attempt.checkpoint_folders())
    if found is not None:
        trainer.restore(found)
        print(f"resumed at step {found.step} from {found.folder}", flush=True)
    resumed = int(found.extra["resumed"]) + 1 if found is not None else 0
    total = trainer.total
    metrics = attempt.path / "metrics.jsonl"
    kept = found.folder if found is not None and found.step == total else None
    last_saved_at, last_saved_step = trainer.seconds, trainer.step

    def save() -> Path:
        nonlocal last_saved_at, last_saved_step
        attempt.ensure_owner()
        last_saved_at, last_saved_step = trainer.seconds, trainer.step
        return checkpoint.save(
            attempt.path, trainer.step, trainer.seconds, trainer.tensors(), {"cell": attempt.cell_id, "resumed": resumed}
        )

    def on_step(report: Report) -> None:
        if report.step % execution.log_every == 0 or report.step in (1, total):
            _append_line(metrics, report.record() | {"seconds": round(trainer.seconds, 3)})
        attempt.beat(report.step, total)
        by_steps = execution.checkpoint_steps is not None and report.step % execution.checkpoint_steps == 0
        by_time = trainer.seconds - last_saved_at >= execution.checkpoint_seconds
        if (by_steps or by_time) and report.step < total:
            save()

    attempt.beat(trainer.step, total)
    common = {"resumed": resumed, "device": _device_name(device), "torch_threads": torch.get_num_threads()}
    try:
        signal = run_steps(trainer, until=total, stop=stop, on_step=on_step)
    except Diverged as diverged:
        attempt.publish_result(
            common
            | {"status": "diverged", "step": diverged.step, "reason": diverged.reason, "weights": None}
            | _seconds(trainer.seconds)
        )
        return Outcome("diverged", diverged.step, diverged.reason)
    if signal:
        if trainer.step > last_saved_step:  # a step has one checkpoint, which never changes
            save()
        return Outcome("stopped", trainer.step, signal)
    folder = kept or save()
    write_json(attempt.path / "series.json", family(cell).series(cell, trainer))
    weights = folder.relative_to(attempt.cell_path).as_posix()
    attempt.publish_result(
        common | {"status": "done", "step": total, "reason": "", "weights": weights} | _seconds(trainer.seconds)
    )
    return Outcome("done", total)


def _append_line(path: Path, record: dict[str, Any]) -> None:
    """One line of metrics.jsonl; a reader skips a last line without its end. Values are finite: :class:`Diverged` saw to it."""
    with explained(path, "append to"), open(path, "a", encoding="utf-8") as file:
        file.write(canonical_json(record) + "\n")
        file.flush()


def _seconds(seconds: float) -> dict[str, float]:
    return {"wall_seconds": round(seconds, 3), "device_seconds": round(seconds, 3)}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
