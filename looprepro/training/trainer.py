"""The training loop of a cell of group words: Adam on the task's loss, exactly resumable, ended by a non-finite number.

Knows no file layout beyond the attempt's own folder, and no task or model beyond their contracts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from looprepro.config.cell import Cell, Execution, word_parts
from looprepro.config.formulas import positions
from looprepro.models import kernels
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks.task import Batch, Task
from looprepro.training.ahead import Ahead
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.dtypes import DTYPES
from looprepro.training.first_bad import FirstBad
from looprepro.training.schedule import learning_rate


@dataclass(frozen=True)
class StepReport:
    """What one optimiser step measured."""

    step: int
    """Updates done, this one included."""
    loss: float | Tensor
    """A tensor where the step did not wait for the device."""
    grad_norm: float | Tensor
    lr: float
    length: int
    mean_depth: float

    def record(self) -> dict[str, Any]:
        """As a line of metrics.jsonl."""
        return {
            "step": self.step,
            "loss": float(self.loss),
            "grad_norm": float(self.grad_norm),
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


class WordTrainer:
    """Model, optimiser and step counter of one run. ``train_step`` depends on them, the cell and the step alone."""

    def __init__(self, cell: Cell, task: Task, execution: Execution, device: torch.device) -> None:
        self.cell, self.task, self.device = cell, task, device
        self._words, self.config, self.training = word_parts(cell)
        self.model = build_model(cell, task).to(device)
        began = time.monotonic()
        self.kernels = kernels.use(self.model, "plain" if self.training.dtype == "bfloat16" else execution.kernels)
        """In force, which may be plain where fused was asked for."""
        self.compile_seconds = time.monotonic() - began
        """Spent compiling kernels and the core, apart from ``seconds``."""
        self.compiled = execution.compile
        if self.compiled:
            self.model.compile_core()
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        training = self.training
        self.total = training.steps
        self.optimizer = torch.optim.Adam(
            self.parameters.values(), lr=training.lr, betas=training.betas, eps=training.eps, **self._adam()
        )
        self._first_bad = FirstBad(device)
        self._read_back_every = execution.read_back_every or (1 if device.type == "cpu" else execution.log_every)
        self._log_every = execution.log_every
        self._ahead = Ahead(self)
        self.step = 0
        self.seconds = 0.0
        self.average: dict[str, Tensor] = {}
        self._average_from = training.steps - round(training.average_last * training.steps)
        self._state_std = self.model.state_std()

    def _adam(self) -> dict[str, bool]:
        """Adam as one loop over all numbers where there is one, else operator by operator over lists."""
        return {"fused": True} if self.kernels == "fused" or self.device.type == "cuda" else {"foreach": True}

    def sample_depths(self, step: int) -> Tensor:
        """Recurrence counts of the step's rows, int64 ``[batch]``; shared by all runs whatever their seed."""
        return self._ahead.depths(step)

    def batch(self, step: int) -> Batch:
        """The step's examples."""
        return self._ahead.batch(step)

    def initial_state(self, step: int, rows: int, time_steps: int) -> Tensor:
        """x_0 ``[rows, time, width]``: truncated normal of std sqrt(2/(5 width)) (Parcae 1.5), drawn by seed, step, row."""
        return self._ahead.states(step, rows, time_steps).to(DTYPES[self.training.dtype]) * self._state_std

    def warm_up(self) -> None:
        """Compile what the next step needs, so that no step does it."""
        with self._autocast():
            self.compile_seconds += self.model.warm_up(self.batch_shape(self.step))

    def batch_shape(self, step: int) -> tuple[int, int]:
        """(rows, time) of the step's tokens. Draws none of them: that belongs to the time of a step."""
        return self.training.batch, positions(self._words, self.task.length(step))

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16")

    def check(self) -> None:
        """:class:`Diverged` where a step so far was not finite, with the first such step. Waits for the device."""
        self._first_bad.check()

    def train_step(self) -> StepReport:
        """One update. :class:`Diverged` where the loss or the gradient norm is not finite; the weights are then untouched if
        the flag is read at every step. Where it is read less often, later steps run on, and no checkpoint is made of them."""
        training, step = self.training, self.step
        batch = self.batch(step)
        counts = self.sample_depths(step)
        state = self.initial_state(step, training.batch, batch.tokens.shape[-1])
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            logits = self.model(batch.tokens, counts, state)
        loss = self.task.loss(logits, batch).mean()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        self._first_bad.note(step + 1, loss, norm)
        logged = (step + 1) % self._log_every == 0 or step + 1 in (1, self.total)
        if logged or (step + 1) % self._read_back_every == 0:
            self.check()
        if training.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), training.clip, norm)
        rate = learning_rate(training, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.step += 1
        self.average = self.averaged(self.average, self.parameters, self.step)
        length, depth = self.task.length(step), float(counts.double().mean())
        if self._read_back_every == 1:
            return StepReport(self.step, float(loss.detach()), float(norm), rate, length, depth)
        return StepReport(self.step, loss.detach(), norm, rate, length, depth)

    def averaged(self, average: dict[str, Tensor], parameters: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        """Uniform mean of the weights after each of the last updates: ``average`` joined by ``parameters``, after ``step``."""
        count = step - self._average_from
        if self.training.average_last == 0.0 or count < 1:
            return average
        with torch.no_grad():
            if count == 1:
                average = {name: p.detach().clone() for name, p in parameters.items()}
            for name, parameter in parameters.items():
                average[name].lerp_(parameter, 1.0 / count)
        return average

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything a checkpoint needs, by file stem. :class:`Diverged` instead of weights that come after a bad step."""
        self.check()
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
                self.optimizer.state[parameter] = {  # the count of updates is float32 whatever the weights are
                    key: value.to(parameter.device, value.dtype if key == "step" else parameter.dtype)
                    for key, value in state.items()
                }
        self.average = {n: t.to(self.device) for n, t in checkpoint.tensors.get("average", {}).items()}
        self.step, self.seconds = checkpoint.step, checkpoint.seconds


def load_weights(model: LoopedTransformer, weights: dict[str, Tensor]) -> None:
    """Strictly: a missing, unexpected or misshapen tensor is an error."""
    model.load_state_dict(weights, strict=True)
