"""The training loop of one cell: Adam on the task's loss, exactly resumable, ended by a non-finite number.

Knows no file layout beyond the attempt's own folder, and no task or model beyond their contracts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Execution, word_parts
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.recurrence import depths, parcae_compatible_depths
from looprepro.tasks.task import Task
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.families import Diverged
from looprepro.training.schedule import learning_rate

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""Type of the parameters for each arithmetic; bfloat16 is autocast over float32 parameters."""


@dataclass(frozen=True)
class StepReport:
    """What one optimiser step measured."""

    step: int
    """Updates done, this one included."""
    loss: float
    grad_norm: float
    lr: float
    length: int
    mean_depth: float

    def record(self) -> dict[str, Any]:
        """As a line of metrics.jsonl."""
        return {
            "step": self.step,
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "lr": self.lr,
            "length": self.length,
            "depth": self.mean_depth,
        }


def build_model(cell: Cell, task: Task) -> LoopedTransformer:
    """The cell's model with the initial weights of its seed, on the CPU."""
    _, config, training = word_parts(cell)
    model = LoopedTransformer(config, task.vocabulary, task.max_time)
    model.initialise(cell.seed)
    return model.to(DTYPES[training.dtype])


class Trainer:
    """Model, optimiser and step counter of one run. ``train_step`` depends on them, the cell and the step alone."""

    def __init__(self, cell: Cell, task: Task, execution: Execution, device: torch.device) -> None:
        self.cell, self.task, self.device = cell, task, device
        _, self.config, self.training = word_parts(cell)
        self.model = build_model(cell, task).to(device)
        if execution.compile:
            self.model.compile_core(dynamic=True)  # one graph for every number of active rows
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        training = self.training
        self.total = training.steps
        self.optimizer = torch.optim.Adam(
            self.parameters.values(), lr=training.lr, betas=training.betas, eps=training.eps, foreach=True
        )
        self.step = 0
        self.seconds = 0.0
        self.average: dict[str, Tensor] = {}
        self._average_from = training.steps - round(training.average_last * training.steps)
        self._state_std = self.model.state_std()

    def sample_depths(self, step: int) -> Tensor:
        """Recurrence counts of the step's rows, int64 ``[batch]``; shared by all runs whatever their seed."""
        config, rows = self.config.recurrence, self.training.batch
        if config.parcae_compat:
            return parcae_compatible_depths(config, step, rows)
        u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, step, torch.arange(rows), 1)
        return depths(config, u[:, 0])

    def initial_state(self, step: int, rows: int, time_steps: int) -> Tensor:
        """x_0 ``[rows, time, width]``: truncated normal of std sqrt(2/(5 width)) (Parcae 1.5), drawn by seed, step, row."""
        width = self.config.width
        drawn = randomness.truncated_normal(
            self.cell.seed, randomness.STATE, step, torch.arange(rows), time_steps * width, device=self.device
        )
        return drawn.reshape(rows, time_steps, width).to(DTYPES[self.training.dtype]) * self._state_std

    def train_step(self) -> StepReport:
        """One update. :class:`Diverged` where the loss or the gradient norm is not finite; the weights are then untouched."""
        training, step = self.training, self.step
        rows = torch.arange(training.batch, dtype=torch.int64) + step * training.batch
        batch = self.task.examples(rows.to(self.device), step)
        counts = self.sample_depths(step)
        state = self.initial_state(step, training.batch, batch.tokens.shape[-1])
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=training.dtype == "bfloat16"):
            logits = self.model(batch.tokens, counts, state)
        loss = self.task.loss(logits, batch).mean()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        loss_value, norm_value = float(loss.detach()), float(norm)
        if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
            what = "loss" if not math.isfinite(loss_value) else "gradient norm"
            raise Diverged(step + 1, f"{what} is {loss_value if what == 'loss' else norm_value}")
        if training.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), training.clip, norm)
        rate = learning_rate(training, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        self._update_average()
        return StepReport(self.step, loss_value, norm_value, rate, self.task.length(step), float(counts.double().mean()))

    def _update_average(self) -> None:
        """Uniform mean of the weights after each of the last updates."""
        count = self.step - self._average_from
        if self.training.average_last == 0.0 or count < 1:
            return
        with torch.no_grad():
            if count == 1:
                self.average = {name: p.detach().clone() for name, p in self.parameters.items()}
            for name, parameter in self.parameters.items():
                self.average[name].lerp_(parameter, 1.0 / count)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything a checkpoint needs, by file stem."""
        moments = {}
        for name, parameter in self.parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                moments[f"{key}.{name}"] = torch.as_tensor(value)
        weights = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        kept = self.model.state_dict().keys()
        found = {"weights": {n: t for n, t in weights.items() if n in kept}, "optimizer": moments}
        return found | ({"average": self.average} if self.average else {})

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from ``checkpoint`` as if it had never stopped."""
        load_weights(self.model, checkpoint.tensors["weights"])
        moments = checkpoint.tensors["optimizer"]
        for name, parameter in self.parameters.items():
            state = {key.split(".", 1)[0]: value for key, value in moments.items() if key.split(".", 1)[1] == name}
            if state:
                self.optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device, parameter.dtype) for key, value in state.items()
                }
        self.average = {n: t.to(self.device) for n, t in checkpoint.tensors.get("average", {}).items()}
        self.step, self.seconds = checkpoint.step, checkpoint.seconds


def load_weights(model: LoopedTransformer, weights: dict[str, Tensor]) -> None:
    """Strictly: a missing, unexpected or misshapen tensor is an error."""
    model.load_state_dict(weights, strict=True)
