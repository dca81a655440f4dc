"""Training a reasoner: windows of k iterations with one loss and one update each, over slots that are refilled (Algorithm 2).

The state is carried from window to window without its graph, so memory does not grow with the number of iterations. Exactly
resumable: a checkpoint holds the carry, and every draw is a function of (seed, stream, row).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import (
    Cell,
    Execution,
    FixedPointReasoner,
    LoopedTransformer,
    ReasonerTraining,
    RecursiveModel,
    narrow,
)
from looprepro.config.reasoner_formulas import slots_at_once
from looprepro.files.errors import StoreError
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.reasoner import Draw, Reasoner
from looprepro.models.fixed_point.solver import Iterate, advance, converged, given_up
from looprepro.models.fixed_point.stablemax import answer_loss
from looprepro.models.reasoners import make_reasoner
from looprepro.tasks.puzzles.task import PuzzleTask
from looprepro.tasks.task import UNSCORED
from looprepro.training.adam_atan2 import AdamATan2
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.dtypes import DTYPES
from looprepro.training.families import Diverged
from looprepro.training.optimizer_state import moments, restore_moments
from looprepro.training.slots import Passed, Slots, SlotSource, advanced, counted_positions, fewest_windows, together

NOISE_BOUND = 6.0
"""Deviations at which the noise of a state is cut: a normal to one part in 10^9."""
UNDECAYED = ("scaling.", "gates")
"""Parts of the names of parameters without weight decay: coefficients behind a sigmoid, which decay would pull to 1/2."""

ReasonerModel = FixedPointReasoner | RecursiveModel | LoopedTransformer


@dataclass(frozen=True)
class WindowReport:
    """What one window measured, over all slots unless stated."""

    step: int
    """Updates done, this one included."""
    loss: float
    grad_norm: float
    lr: float
    exact_accuracy: float
    """Answers that are wholly right at the end of the window."""
    halted: float
    """Share of slots whose sample leaves after it."""
    measured: dict[str, float] = field(default_factory=dict)
    """``residual`` (median), ``eta`` (mean), ``iterations`` of the samples that left, if any did; the model's own numbers."""

    def record(self) -> dict[str, Any]:
        """As a line of metrics.jsonl: what is not finite is left out."""
        own = {name: getattr(self, name) for name in ("step", "loss", "grad_norm", "lr", "exact_accuracy", "halted")}
        return own | {name: value for name, value in self.measured.items() if math.isfinite(value)}


def reasoner_parts(cell: Cell) -> tuple[ReasonerModel, ReasonerTraining]:
    """Model and training of a cell of the reasoner family."""
    model = cell.model
    if not isinstance(model, FixedPointReasoner | RecursiveModel | LoopedTransformer):
        raise TypeError(f"{type(model).__name__} where the family has a reasoner")
    return model, narrow(cell.training, ReasonerTraining)


def shapes_of(task: PuzzleTask) -> Shapes:
    """What the model has to know of the task."""
    longest = max(task.time, task.evaluation_time)
    return Shapes(task.vocabulary, longest, task.causal, task.grid, task.puzzle_identifiers)


def build_reasoner(cell: Cell, task: PuzzleTask) -> Reasoner:
    """The cell's model with the initial weights of its seed, on the CPU."""
    config, training = reasoner_parts(cell)
    model = make_reasoner(config, shapes_of(task))
    model.initialise(cell.seed)
    return model.to(DTYPES[training.dtype])


def load_reasoner(model: Reasoner, weights: dict[str, Tensor]) -> None:
    """Strictly; :class:`StoreError` where the puzzle table was made for other data."""
    table, saved = model.frame.puzzles, weights.get("frame.puzzles")
    if table is not None and saved is not None and saved.shape != table.shape:
        raise StoreError(
            f"the weights know {len(saved)} puzzle identifiers and the task has {len(table)}",
            "Use the data that the cell was trained on: identifiers number its puzzles",
        )
    model.load_state_dict(weights, strict=True)


def noise_source(model: Reasoner, seed: int, stream: int, rows: Tensor, count: Tensor, positions: int) -> Draw | None:
    """Noise of one iteration, by row and number of the draw within the sample (``count``: iterations done, ``[rows]``)."""
    if not model.noisy_calls:
        return None
    width, dtype = model.width, next(model.parameters()).dtype

    def draw(call: int) -> Tensor:
        number = count * model.noisy_calls + call
        drawn = randomness.truncated_normal(seed, stream, number, rows, positions * width, NOISE_BOUND, rows.device)
        return drawn.reshape(len(rows), positions, width).to(dtype)

    return draw


class ReasonerTrainer:
    """Model, optimiser, slots and step counter of one run. ``train_step`` depends on them and the cell alone."""

    def __init__(self, cell: Cell, task: PuzzleTask, execution: Execution, device: torch.device) -> None:
        self.cell, self.task, self.device = cell, task, device
        self.config, self.training = reasoner_parts(cell)
        self.model = build_reasoner(cell, task).to(device)
        self._iterate = torch.compile(self.model.iterate) if execution.compile else self.model.iterate
        self.parameters: dict[str, Tensor] = dict(self.model.named_parameters())
        self.micro_batch = slots_at_once(cell, execution)
        self.optimizer = _optimizer(self.training, self.parameters, self.model.slower)
        self.source = SlotSource(self.model, task, self.training, cell.seed, device)
        self.slots: Slots | None = None
        self.average = {n: p.detach().clone() for n, p in self.parameters.items()} if self.training.ema else {}
        self.step = 0
        self.seconds = 0.0
        self.total = self.training.steps

    def train_step(self) -> WindowReport:
        """One window and one update. :class:`Diverged` where the loss or the gradient norm is not finite."""
        training, model = self.training, self.model
        # Kept from here on: refilled twice is refilled once, and nobody then holds the states that made room.
        self.slots = slots = self.source.first() if self.slots is None else self.source.refilled(self.slots)
        batch = slots.batch
        puzzle = model.frame.puzzle_vectors(batch.puzzle_ids)
        if puzzle is not None:
            puzzle = puzzle.detach().requires_grad_()
        self.optimizer.zero_grad(set_to_none=True)
        passed = self._pass(slots, puzzle)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        loss_value, norm_value = float(passed.loss), float(norm)
        if not (math.isfinite(loss_value) and math.isfinite(norm_value)):
            what, value = ("loss", loss_value) if not math.isfinite(loss_value) else ("gradient norm", norm_value)
            raise Diverged(self.step + 1, f"{what} is {value}")
        if training.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), training.clip, norm)
        warmth = min(1.0, (self.step + 1) / training.warmup) if training.warmup else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = training.lr * warmth * group["share"]
        self.optimizer.step()
        if puzzle is not None:
            self._move_puzzles(batch.puzzle_ids, puzzle, training.puzzle_lr * warmth)
        self.step += 1
        self._update_average()
        self.slots = advanced(slots, passed.iterate, self._halted(slots, passed.iterate, passed.halting))
        report = self._measure(self.slots)
        accuracy, share = float(passed.right.double().mean()), float(self.slots.halted.double().mean())
        return WindowReport(self.step, loss_value, norm_value, training.lr * warmth, accuracy, share, report)

    def _pass(self, slots: Slots, puzzle: Tensor | None) -> Passed:
        """The window of all slots, ``micro_batch`` at a time, with its backward pass: gradients of the mean loss add up.

        Nothing in it crosses from one slot to another, so the parts decide rounding and memory and nothing else.
        """
        count = len(slots.windows)
        if self.micro_batch >= count:
            return self._pass_part(slots, puzzle, 1.0)
        parts = []
        for start in range(0, count, self.micro_batch):
            stop = min(start + self.micro_batch, count)
            vectors = None if puzzle is None else puzzle[start:stop]
            parts.append(self._pass_part(slots.part(start, stop), vectors, (stop - start) / count))
        return together(parts)

    def _pass_part(self, slots: Slots, puzzle: Tensor | None, share: float) -> Passed:
        """Forward and backward pass of ``slots``, which are ``share`` of the batch."""
        training, batch = self.training, slots.batch
        with self._arithmetic():
            iterate, x = self._window(slots, puzzle)
            logits, halting = self.model.decode(iterate.z)
        right = ((logits.argmax(dim=-1) == batch.targets) | (batch.targets == UNSCORED)).all(dim=-1)
        losses = answer_loss(logits, batch.targets, UNSCORED, training.loss)
        if training.halt_loss:
            losses = losses + training.halt_loss * self._halt_loss(slots, iterate, x, halting, right)
        loss = losses.mean() * share
        loss.backward()
        return Passed(iterate.detached(), halting.detach(), right, loss.detach())

    def _arithmetic(self) -> torch.autocast:
        """Of forward passes: bfloat16 autocast, or nothing."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16")

    def _window(self, slots: Slots, puzzle: Tensor | None) -> tuple[Iterate, Tensor]:
        """k iterations with gradient from the carried states; (where they end, the embedded input)."""
        model, state = self.model, slots.iterate
        x = model.frame.embed(slots.batch.inputs, puzzle)
        states = len(model.state_shape(1)) - 1
        counted = counted_positions(slots.batch, self.task.causal, model.prefix, states)
        for _ in range(self.training.window):
            rows, count = slots.batch.rows, state.count
            draw = noise_source(model, self.cell.seed, randomness.NOISE, rows, count, x.shape[1])
            state = advance(state, self._iterate(state.z, x, draw), self.training, counted)
        return state, x

    def _halt_loss(self, slots: Slots, iterate: Iterate, x: Tensor, halting: Tensor, right: Tensor) -> Tensor:
        """Cross-entropy of the halting head against "the answer is wholly right", float64 ``[slots]``; with ``continue_loss``
        also of its second output against the next step's own estimate of the better choice (HRM's bootstrap)."""
        wide = halting.double()
        stop = F.binary_cross_entropy_with_logits(wide[:, 0], right.double(), reduction="none")
        if not self.training.continue_loss:
            return stop
        with torch.no_grad(), self._arithmetic():
            rows, model = slots.batch.rows, self.model
            draw = noise_source(model, self.cell.seed, randomness.NOISE, rows, iterate.count, x.shape[1])
            following = model.decode(self._iterate(iterate.z.detach(), x.detach(), draw))[1].double()
            at_cap = slots.windows + 1 >= slots.caps  # after this window the sample leaves: nothing to go on to
            value = torch.sigmoid(torch.where(at_cap, following[:, 0], following.amax(dim=1)))
        return stop + F.binary_cross_entropy_with_logits(wide[:, 1], value, reduction="none")

    @torch.no_grad()
    def _halted(self, slots: Slots, iterate: Iterate, halting: Tensor) -> Tensor:
        """Which samples leave after this window."""
        done = slots.windows + 1
        at_cap = done >= slots.caps
        if self.training.halting == "residual":
            return at_cap | converged(iterate, self.training) | given_up(iterate, self.training)
        if self.training.halting == "act":
            fewest = fewest_windows(self.training, self.cell.seed, slots.batch.rows, done)
            return at_cap | (wants_to_stop(halting, self.training) & (done >= fewest))
        return at_cap

    @torch.no_grad()
    def _move_puzzles(self, identifiers: Tensor, puzzle: Tensor, rate: float) -> None:
        """SignSGD with decoupled decay on the rows of the puzzle table that the batch uses."""
        table = self.model.frame.puzzles
        if table is None or puzzle.grad is None:
            return
        used, place = identifiers.unique(return_inverse=True)
        gradient = torch.zeros(len(used), table.shape[1], dtype=puzzle.grad.dtype, device=table.device)
        gradient.index_add_(0, place, puzzle.grad)
        table[used] = table[used] * (1.0 - rate * self.training.puzzle_weight_decay) - rate * gradient.sign().to(table.dtype)

    @torch.no_grad()
    def _update_average(self) -> None:
        if self.training.ema:
            values = list(self.average.values())
            torch._foreach_lerp_(values, [self.parameters[name].detach() for name in self.average], 1.0 - self.training.ema)

    @torch.no_grad()
    def _measure(self, slots: Slots) -> dict[str, float]:
        found = {"residual": float(slots.iterate.residual.median()), "eta": float(slots.iterate.eta.float().mean())}
        if bool(slots.halted.any()):
            found["iterations"] = float(slots.iterate.count[slots.halted].double().mean())
        return found | self.model.monitored()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything a checkpoint needs, by file stem."""
        found = {"weights": dict(self.model.state_dict()), "optimizer": moments(self.optimizer, self.parameters)}
        if self.average:
            found["average"] = self.average
        if self.slots is not None:
            found["carry"] = self.slots.carry()
        return found

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from ``checkpoint`` as if it had never stopped."""
        load_reasoner(self.model, checkpoint.tensors["weights"])
        restore_moments(self.optimizer, self.parameters, checkpoint.tensors["optimizer"])
        self.average = {n: t.to(self.device) for n, t in checkpoint.tensors.get("average", {}).items()}
        carry = checkpoint.tensors.get("carry")
        self.slots = None if carry is None else self.source.restored(carry)
        self.step, self.seconds = checkpoint.step, checkpoint.seconds


def wants_to_stop(halting: Tensor, training: ReasonerTraining) -> Tensor:
    """Bool ``[rows]`` from halting logits ``[rows, 2]``: a probability above 1/2, or (HRM) above the value of going on."""
    return halting[:, 0] > (halting[:, 1] if training.continue_loss else 0.0)


def _optimizer(training: ReasonerTraining, parameters: dict[str, Tensor], slower: Mapping[str, float]) -> torch.optim.Optimizer:
    """Groups by decay and by ``share``, the part of the learning rate that they take; what is ``slower`` is not decayed."""
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for name, parameter in parameters.items():
        share = next((share for start, share in slower.items() if name.startswith(start)), None)
        decays = share is None and not any(part in name for part in UNDECAYED)
        key = (training.weight_decay if decays else 0.0, 1.0 if share is None else share)
        groups.setdefault(key, []).append(parameter)
    settings: list[dict[str, Any]] = [
        {"params": members, "weight_decay": decay, "share": share} for (decay, share), members in groups.items()
    ]
    if training.optimizer == "adam_atan2":
        return AdamATan2(settings, training.lr, training.betas)
    return torch.optim.AdamW(settings, lr=training.lr, betas=training.betas, eps=training.eps, foreach=True)
