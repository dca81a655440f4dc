"""The training loop of a language model: micro-batches summed to a batch of tokens, over one or several ranks.

Everything random is a function of (seed, stream, optimiser step, row of the step), never of the rank or the micro-batch, so the
same rows are trained whatever the number of ranks. Parcae's recipe; docs/language.md says where it differs.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Execution, text_parts
from looprepro.config.language_formulas import rows_per_step, schedule_steps, total_steps
from looprepro.models.charts import Rates
from looprepro.models.injections import Injection
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.models.recurrence import depths, parcae_compatible_depths
from looprepro.tasks.task import Batch
from looprepro.training.checkpoint import Checkpoint
from looprepro.training.distributed import END, START, STEP, Ranks
from looprepro.training.dtypes import DTYPES
from looprepro.training.families import Diverged
from looprepro.training.language_schedule import rates
from looprepro.training.muon import MuonAdamW

PROBED_ROWS = 1
"""Validation rows on which the size of the last recurrent step is measured."""


class Task(Protocol):
    """What training needs of a text: rows by index, of the same number of positions, and their loss."""

    @property
    def max_time(self) -> int:
        """Positions of a row."""

    @property
    def validation_rows(self) -> int:
        """Validation rows in all."""

    def examples(self, rows: Tensor, step: int) -> Batch:
        """Training rows by their count since the start of the run."""

    def evaluation_examples(self, rows: Tensor) -> Batch:
        """Validation rows by number."""

    def digest(self) -> Tensor:
        """Which text it is, for a checkpoint."""

    def require(self, digest: Tensor) -> None:
        """:class:`StoreError` where a checkpoint's text is another one."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Summed over the real targets of each row (``batch.scored [rows, time]``): ``[rows]``."""


@dataclass(frozen=True)
class LanguageReport:
    """What one optimiser step measured, over all ranks."""

    step: int
    """Optimiser steps done, this one included."""
    values: dict[str, float]

    def record(self) -> dict[str, Any]:
        """As a line of metrics.jsonl; a value that is not finite (of a skipped update) is left out."""
        return {"step": self.step} | {name: value for name, value in self.values.items() if math.isfinite(value)}


def build_model(cell: Cell) -> LoopedTransformer:
    """The cell's model with the initial weights of its seed, on the CPU."""
    task, config, training = text_parts(cell)
    model = LoopedTransformer(config, task.vocabulary, task.sequence)
    model.initialise(cell.seed)
    return model.to(DTYPES[training.dtype])


def max_decay(injection: Injection) -> float:
    """The largest modulus of an eigenvalue of A: the slowest decay. From the rates where the operator has them."""
    rates_of = getattr(injection, "rates", None)
    if isinstance(rates_of, Rates):
        return float(rates_of().c.detach().max())
    return float(torch.linalg.eigvals(injection.matrix()).abs().max())


class LanguageTrainer:
    """Model, optimisers and step counter of one run, as one rank sees them."""

    def __init__(self, cell: Cell, task: Task, execution: Execution, device: torch.device, ranks: Ranks | None = None) -> None:
        self.cell, self.task, self.device, self.ranks = cell, task, device, ranks or Ranks()
        _, self.config, self.training = text_parts(cell)
        self.log_every = execution.log_every
        self.model = build_model(cell).to(device)
        self.model.checkpoint_steps = self.training.activation_checkpointing == "per-iteration"
        if execution.compile:
            self.model.compile_core()
        self.compile_seconds = 0.0
        """Spent compiling the core, apart from ``seconds``."""
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = MuonAdamW(
            self.parameters,
            betas=self.training.betas,
            eps=self.training.eps,
            beta2=self.training.muon_beta2,
            dtype=getattr(torch, self.training.muon_dtype),
            round_rates=self.training.parcae_compat.round_rates,
        )
        self.rows = rows_per_step(cell)
        self.validation_rows = min(self.training.validation_rows, task.validation_rows)
        self.total, self.schedule_steps = total_steps(cell), schedule_steps(cell)
        self.step = 0
        self.seconds = 0.0
        self.tokens = 0
        """Real tokens trained on."""
        self.skipped = self.skipped_in_a_row = 0
        """Updates left out because a number was not finite."""
        self._started = self.ranks.count == 1

    # One step --------------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Compile what a micro-batch needs, where compiling is asked for, so that no step does it."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
            self.compile_seconds += self.model.warm_up((self.training.micro_batch, self.task.max_time))

    def train_step(self) -> LanguageReport:
        """One step, called on rank 0. :class:`Diverged` after more than ``max_skipped`` updates in a row that were skipped."""
        if not self._started:
            self.ranks.tell(START)
            self._take_over()
            self._started = True
        self.ranks.tell(STEP)
        return self._step()

    def follow(self) -> None:
        """What the other ranks do: as rank 0 says, until the cell is over."""
        while (word := self.ranks.tell()) != END:
            if word == START:
                self._take_over()
                self.warm_up()
            elif word == STEP:
                with suppress(Diverged):  # rank 0 diverges in the same step, and says what follows
                    self._step()

    def _step(self) -> LanguageReport:
        training, step = self.training, self.step
        sums = self._accumulate(step)
        now = rates(training, step, self.schedule_steps)
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.parameters.values() if p.grad is not None])
        bad = sums[3:4] + (not math.isfinite(float(norm)))
        self.ranks.sum([bad])
        loss, mean_depth = float(sums[0] / sums[1]), float(sums[2] / self.rows)
        if float(bad) > 0:
            self.skipped += 1
            self.skipped_in_a_row += 1
            loss = math.nan
        else:
            self.skipped_in_a_row = 0
            if training.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(self.parameters.values(), training.clip, norm)
            if step > 0 or not training.parcae_compat.discard_first_step:
                self.optimizer.step(now)
        self.tokens += int(sums[1])
        self.step += 1
        if self.skipped_in_a_row > training.max_skipped:
            raise Diverged(self.step, f"{self.skipped_in_a_row} updates in a row were not finite")
        values = {
            "loss": loss,
            "grad_norm": float(norm),
            "lr": now.lr,
            "momentum": now.momentum,
            "weight_decay": now.weight_decay,
            "depth": mean_depth,
            "tokens": self.tokens,
            "skipped": self.skipped,
        }
        return LanguageReport(self.step, values | self._observed())

    def _accumulate(self, step: int) -> Tensor:
        """Gradients of the whole batch's mean loss over real tokens, on every rank.

        Float64 [4]: summed loss, real tokens, summed depths, micro-batches whose loss is not finite.
        """
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)  # on every rank alike, also where a micro-batch gives none
        size = self.training.micro_batch
        starts = list(range(0, self.rows, size))
        mine = starts[self.ranks.rank :: self.ranks.count]
        sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        for number, start in enumerate(mine):
            rows = torch.arange(start, min(start + size, self.rows), dtype=torch.int64)
            sums += self._micro_batch(step, rows, step * -(-len(starts) // self.ranks.count) + number + 1)
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        self.ranks.sum([sums, *gradients])
        torch._foreach_mul_(gradients, float(self.training.batch_tokens / sums[1].clamp(min=1.0)))
        return sums

    def _micro_batch(self, step: int, rows: Tensor, micro_step: int) -> Tensor:
        """``rows``: places in the step's batch. Gradients are those of the summed loss over ``batch_tokens``."""
        batch = self.task.examples((rows + step * self.rows).to(self.device), step)
        counts = self.sample_depths(step, rows, micro_step)
        state = self.initial_state(randomness.STATE, step, rows)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
            logits = self.model(batch.tokens, counts, state, batch.documents)
        loss = self.task.loss(logits, batch).sum()
        (loss / self.training.batch_tokens).backward()
        finite = torch.isfinite(loss.detach())
        value = torch.where(finite, loss.detach(), 0.0)
        found = (value, batch.scored.sum(), counts.sum().to(self.device), ~finite)
        return torch.stack([item.to(torch.float64) for item in found])

    def sample_depths(self, step: int, rows: Tensor, micro_step: int) -> Tensor:
        """Recurrence counts, int64 ``[len(rows)]``; shared by all runs whatever their seed.

        ``parcae_compat`` draws per micro-batch (counted from 1 on each rank) instead of per row of the step.
        """
        config = self.config.recurrence
        if config.parcae_compat:
            return parcae_compatible_depths(config, micro_step, len(rows), self.ranks.rank)
        return depths(config, randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, step, rows, 1)[:, 0])

    def initial_state(self, stream: int, step: int, rows: Tensor) -> Tensor:
        """x_0 ``[rows, sequence, width]``: truncated normal of std sqrt(2/(5 width)) (Parcae 1.5), drawn by seed, step, row."""
        time, width = self.task.max_time, self.config.width
        drawn = randomness.truncated_normal(self.cell.seed, stream, step, rows, time * width, device=self.device)
        return drawn.view(len(rows), time, width).to(DTYPES[self.training.dtype]) * self.model.state_std()

    # What a run says of itself ---------------------------------------------------------------------------------------

    def _observed(self) -> dict[str, float]:
        """Where a line is logged: the slowest decay and the size of the last recurrent step. Where it is due: validation."""
        found = {}
        last = self.step == self.total
        if self.step % self.log_every == 0 or self.step == 1 or last:
            found = {"max_decay": max_decay(self.model.injection), "relative_change": self._relative_change()}
        if self.step % self.training.validate_every == 0 or last:
            found["validation_loss"] = self._validation_loss()
        return found

    def mean_steps(self) -> int:
        """T of validation during training: the mean recurrence."""
        return max(1, round(self.config.recurrence.mean))

    @torch.no_grad()
    def _relative_change(self) -> float:
        rows = torch.arange(PROBED_ROWS, dtype=torch.int64)
        batch = self.task.evaluation_examples(rows.to(self.device))
        state = self.initial_state(randomness.EVALUATION_STATE, 0, rows)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
            return float(self.model.relative_change(batch.tokens, state, self.mean_steps(), batch.documents).mean())

    @torch.no_grad()
    def _validation_loss(self) -> float:
        """Mean loss per real token over the first ``validation_rows`` validation rows, shared out over the ranks."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        size, count = self.training.micro_batch, self.validation_rows
        for start in list(range(0, count, size))[self.ranks.rank :: self.ranks.count]:
            rows = torch.arange(start, min(start + size, count), dtype=torch.int64)
            batch = self.task.evaluation_examples(rows.to(self.device))
            state = self.initial_state(randomness.EVALUATION_STATE, 0, rows)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
                logits = self.model(batch.tokens, self.mean_steps(), state, batch.documents)
            sums += torch.stack([self.task.loss(logits, batch).sum().double(), batch.scored.sum().double()])
        self.ranks.sum([sums])
        return float(sums[0] / sums[1])

    # State -----------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Everything a checkpoint needs, by file stem."""
        counters = torch.tensor([self.tokens, self.skipped, self.skipped_in_a_row], dtype=torch.int64)
        weights = {name: tensor.detach() for name, tensor in self.model.state_dict().items()}
        optimizer = {"counters": counters, **self.optimizer.tensors()}
        return {"weights": weights, "optimizer": optimizer, "data": {"content": self.task.digest()}}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from ``checkpoint`` as if it had never stopped; the other ranks follow at the next step.

        :class:`StoreError` where it was trained on another text.
        """
        self.task.require(checkpoint.tensors["data"]["content"])
        self.model.load_state_dict(checkpoint.tensors["weights"], strict=True)
        optimizer = checkpoint.tensors["optimizer"]
        self.optimizer.restore(optimizer)
        self.tokens, self.skipped, self.skipped_in_a_row = optimizer["counters"].tolist()
        self.step, self.seconds = checkpoint.step, checkpoint.seconds

    def _take_over(self) -> None:
        """Rank 0's weights, optimiser state and counters on every rank."""
        kept = [self.step, self.tokens, self.skipped, self.skipped_in_a_row]
        self.step, self.tokens, self.skipped, self.skipped_in_a_row = self.ranks.tell(kept)
        with torch.no_grad():
            self.ranks.copy_from_first([*self.parameters.values(), *self.optimizer.tensors().values()])

    def __enter__(self) -> LanguageTrainer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Rank 0: the other ranks are not needed any more."""
        self.ranks.leave(failed=kind is not None)
