"""What training writes into the attempt of one cell: log lines, checkpoints, series, the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from looprepro.config.cell import Cell, Execution
from looprepro.files.atomic import explained
from looprepro.files.json_files import canonical_json, write_json
from looprepro.store.attempt import Attempt
from looprepro.training import checkpoint
from looprepro.training.families import Diverged, Report, Trainer, family

ALONE = "alone"


class Recorder:
    """One cell's trainer and its attempt. Writes nothing before the first step."""

    def __init__(self, cell: Cell, attempt: Attempt, execution: Execution, device: torch.device) -> None:
        self.cell, self.execution, self.device, self.attempt = cell, execution, device, attempt
        self.trainer: Trainer = family(cell).trainer(cell, execution, device)
        self.device_seconds = 0.0
        """Over all attempts: seconds of devices that this cell was given; of a pack, or a GPU that is shared, its part."""
        self.packs: list[str] = []
        """Names of the packs, in their order, that it trained in; ``alone`` stands for itself."""
        self._resumed = 0
        self._kept: Path | None = None
        self._saved_step, self._saved_at = 0, 0.0

    def resume(self, found: checkpoint.Checkpoint | None, pack: str = ALONE) -> None:
        """Begin from a checkpoint, or from the start, as a member of ``pack``."""
        if found is not None:
            self.trainer.restore(found)
            print(f"{self.attempt.cell_id}: resumed at step {found.step} from {found.folder}", flush=True)
            self._resumed = int(found.extra["resumed"]) + 1
            self._kept = found.folder if found.step == self.trainer.total else None
            self.device_seconds = float(found.extra.get("device_seconds", found.seconds))
            self.packs = list(found.extra.get("packs", [ALONE]))
        if self._kept is None:
            self.joins(pack)
        self._saved_step, self._saved_at = self.trainer.step, self.trainer.seconds
        self.attempt.beat(self.trainer.step, self.trainer.total)

    def joins(self, pack: str) -> None:
        """The next steps are trained in ``pack``."""
        if self.packs[-1:] != [pack]:
            self.packs.append(pack)

    def spent(self, wall: float, members: int = 1) -> None:
        """Count seconds of training, in which a pack of ``members`` cells shared what the attempt holds."""
        device = wall * self.attempt.devices / members
        self.trainer.seconds += wall
        self.device_seconds += device
        if members > 1:  # what a single cell holds is the worker's to count, since it holds it outside training, too
            self.attempt.device_seconds = (self.attempt.device_seconds or 0.0) + device

    def warm_up(self) -> None:
        """Let a trainer that compiles do so now, outside the clock."""
        compiling = getattr(self.trainer, "warm_up", None)
        if compiling is not None:
            compiling()

    def log(self, report: Report) -> None:
        """A line of metrics.jsonl where one is due, and a sign of life."""
        total = self.trainer.total
        if report.step % self.execution.log_every == 0 or report.step in (1, total):
            path = self.attempt.path / "metrics.jsonl"
            # A reader skips a last line without its end. Values are finite: Diverged saw to it.
            with explained(path, "append to"), open(path, "a", encoding="utf-8") as file:
                file.write(canonical_json(report.record() | {"seconds": round(self.trainer.seconds, 3)}) + "\n")
                file.flush()
        self.attempt.beat(report.step, total)

    def is_checkpoint_due(self, step: int) -> bool:
        """After ``step`` updates; never after the last one, which has a checkpoint of its own."""
        every = self.execution.checkpoint_steps
        by_steps = every is not None and step % every == 0
        by_time = self.trainer.seconds - self._saved_at >= self.execution.checkpoint_seconds
        return (by_steps or by_time) and step < self.trainer.total

    def save(self) -> None:
        """A checkpoint of where the trainer stands, unless there is one: a step has one checkpoint, which never changes."""
        if self.trainer.step > self._saved_step:
            self._save()

    def diverged(self, diverged: Diverged) -> None:
        """Publish that the cell has no number."""
        self.attempt.publish_result(
            self._result() | {"status": "diverged", "step": diverged.step, "reason": diverged.reason, "weights": None}
        )

    def done(self) -> None:
        """Keep the trained weights and what they draw, and publish the result."""
        folder = self._kept or self._save()
        write_json(self.attempt.path / "series.json", family(self.cell).series(self.cell, self.trainer))
        weights = folder.relative_to(self.attempt.cell_path).as_posix()
        self.attempt.publish_result(
            self._result() | {"status": "done", "step": self.trainer.total, "reason": "", "weights": weights}
        )

    def _save(self) -> Path:
        self.attempt.ensure_owner()
        self._saved_step, self._saved_at = self.trainer.step, self.trainer.seconds
        extra = {
            "cell": self.attempt.cell_id,
            "resumed": self._resumed,
            "device_seconds": round(self.device_seconds, 3),
            "packs": self.packs,
        }
        folder = checkpoint.save(self.attempt.path, self.trainer.step, self.trainer.seconds, self.trainer.tensors(), extra)
        if self.trainer.step == self.trainer.total:
            self._kept = folder
        return folder

    def _result(self) -> dict[str, Any]:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {
            "resumed": self._resumed,
            "pack": None if self.packs == [ALONE] else "+".join(self.packs),
            "device": name,
            "torch_threads": torch.get_num_threads(),
            "kernels": getattr(self.trainer, "kernels", "plain"),
            "micro_batch": getattr(self.trainer, "micro_batch", None),
            "compile_seconds": round(getattr(self.trainer, "compile_seconds", 0.0), 3),
            "wall_seconds": round(self.trainer.seconds, 3),
            "device_seconds": round(self.device_seconds, 3),
        }
