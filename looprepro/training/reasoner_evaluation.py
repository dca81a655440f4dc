"""Measuring a reasoner: every item iterates until it halts and answers what it then holds (Fixed-Point Reasoners, 4 and E).

Items go through in blocks of one shape; with freezing an item's answer depends on nobody else in its block. z_0 and noise come
from streams that training never draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Evaluation, ReasonerEvaluation, narrow
from looprepro.models.fixed_point.reasoner import Reasoner
from looprepro.models.fixed_point.solver import Iterate, solve
from looprepro.tasks.puzzles.task import PuzzleBatch, PuzzleTask
from looprepro.tasks.task import UNSCORED, Count
from looprepro.training.families import Documents
from looprepro.training.reasoner import noise_source, reasoner_parts, wants_to_stop
from looprepro.training.slots import counted_positions, initial_states

BLOCKS = {"cpu": 64, "cuda": 1024}
"""Items per block on each kind of device; part of what makes a number bit-reproducible, so a constant."""
NORM_LAYERS = 512
"""Layers whose activation norms are recorded, in the first block."""
DISTINCT = 32
"""With more values of difficulty than this they are gathered into :data:`BINS` bins of equal width."""
BINS = 16


def readout_marks(cap: int) -> list[int]:
    """Iterations after which answers are read: 1, 2, 3, 4, 6, 8, 12, 16, 24, ... and ``cap``."""
    marks, power = {1, cap}, 2
    while power <= cap:
        marks |= {power, min(power * 3 // 2, cap)}
        power *= 2
    return sorted(marks)


@dataclass
class Tally:
    """What the blocks of one evaluation add up to."""

    counts: dict[str, Count] = field(default_factory=dict)
    by_mark: dict[str, list[Tensor]] = field(default_factory=dict)
    """Per block ``[marks, items]``: exact, share of right positions, residual."""
    per_item: dict[str, list[Tensor]] = field(default_factory=dict)
    """Per block ``[items, ...]``."""
    norms: list[float] = field(default_factory=list)

    def add(self, counts: dict[str, Count]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts[name] + count if name in self.counts else count

    def keep(self, group: dict[str, list[Tensor]], found: dict[str, Tensor]) -> None:
        for name, tensor in found.items():
            group.setdefault(name, []).append(tensor.cpu())


class Measurement:
    """One evaluation of one model."""

    def __init__(
        self, model: Reasoner, task: PuzzleTask, cell: Cell, evaluation: ReasonerEvaluation, device: torch.device
    ) -> None:
        self.model, self.task, self.cell, self.evaluation, self.device = model, task, cell, evaluation, device
        self.config, self.training = reasoner_parts(cell)
        self.marks = readout_marks(evaluation.T)
        self.tally = Tally()

    def document(self) -> dict[str, Any]:
        """{"evaluation", "metrics", "series"} over all items; and "submission" where the benchmark has a file of answers."""
        limit = self.task.evaluation_limit
        items = self.evaluation.items if limit is None else min(self.evaluation.items, limit)
        block = min(BLOCKS[self.device.type], items)
        for start in range(0, items, block):
            rows = torch.arange(start, start + block, dtype=torch.int64)
            self._block(torch.where(rows < items, rows, rows - start), min(block, items - start))
        return self._document(items)

    @torch.no_grad()
    def _block(self, rows: Tensor, used: int) -> None:
        """``rows`` of one block, the first ``used`` of which count: the last block is filled up with its own first items."""
        model, own = self.model, self.evaluation
        batch = self.task.evaluation_examples(rows.to(self.device)).to(self.device)
        z = initial_states(model, self.cell.seed, randomness.EVALUATION_STATE, rows, batch.inputs.shape[1], self.device)
        reader = Reader(self, batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.dtype == "bfloat16"):
            x = model.frame.embed(batch.inputs, model.frame.puzzle_vectors(batch.puzzle_ids))
            positions = x.shape[1]
            done = 0

            def function(state: Tensor) -> Tensor:
                nonlocal done
                count = torch.full((len(rows),), done, dtype=torch.int64, device=self.device)
                draw = noise_source(model, self.cell.seed, randomness.EVALUATION_NOISE, batch.rows, count, positions)
                done += 1
                return model.iterate(state, x, draw, reader.probe())

            counted = counted_positions(batch, self.task.causal, model.prefix, len(model.state_shape(1)) - 1)
            solution = solve(
                function, z, own, own.T, freeze=own.freeze, counted=counted, stops=self._stops(), watch=reader.watch
            )
            logits, halting = model.decode(solution.state.z)
        state = solution.state
        first = PuzzleBatch(*(t[:used] for t in (batch.inputs, batch.targets, batch.puzzle_ids, batch.difficulty, batch.rows)))
        self.tally.add(self.task.metrics(logits[:used], first))
        confidence = torch.sigmoid(halting[:used, 0].double())
        found = {
            "answers": logits[:used].argmax(dim=-1),
            "confidence": confidence,
            "rows": batch.rows[:used],
            "difficulty": batch.difficulty[:used].double(),
            "iterations": state.count[:used].double(),
            "effective_layers": model.effective_layers(state.count)[:used],
            "halted": solution.halted[:used].double(),
            "converged": solution.converged[:used].double(),
            "residual": state.residual[:used].double(),
            "exact": exact_rows(logits[:used], first.targets).double(),
        }
        self.tally.keep(self.tally.per_item, found)
        self.tally.keep(self.tally.by_mark, {name: values[:, :used] for name, values in reader.finished().items()})

    def _stops(self) -> Any:
        """The criterion in place of the solver's own, by the evaluation's halting."""
        own = self.evaluation
        if own.halting == "residual":
            return None
        if own.halting == "fixed":
            return lambda state: torch.zeros_like(state.count, dtype=torch.bool)
        return lambda state: wants_to_stop(self.model.decode(state.z)[1], self.training)

    def _document(self, items: int) -> dict[str, Any]:
        own, name = self.evaluation, f"@T={self.evaluation.T}"
        joined = {key: torch.cat(blocks) for key, blocks in self.tally.per_item.items()}
        self.tally.add(self.task.pooled_metrics(joined["answers"], joined["confidence"], joined["rows"]))
        metrics, series = {}, {}
        for key, count in self.tally.counts.items():
            mean = count.value.cpu()
            if mean.ndim == 0:
                metrics[key] = {"value": float(mean), "items": count.items}
            else:
                series[key + name] = _points([float(i) for i in range(1, len(mean) + 1)], mean.tolist())
        for key in ("iterations", "effective_layers", "halted", "converged"):
            metrics[key] = {"value": float(joined[key].mean()), "items": items}
        if bool(joined["confidence"].isfinite().all()):  # a state that overflowed has none, and no residual
            metrics["confidence"] = {"value": float(joined["confidence"].mean()), "items": items}
        residual = joined["residual"]
        if bool(residual.isfinite().all()):
            metrics["residual"] = {"value": float(residual.median()), "items": items}
        layers = [float(mark * self.model.layers_per_iteration) for mark in self.marks]
        marked = {key: torch.cat(blocks, dim=1) for key, blocks in self.tally.by_mark.items()}
        series[f"exact_accuracy_by_layers{name}"] = _points(layers, marked["exact"].mean(dim=1).tolist())
        series[f"token_accuracy_by_layers{name}"] = _points(layers, marked["share"].mean(dim=1).tolist())
        medians = marked["residual"].median(dim=1).values
        finite = medians.isfinite().tolist()
        series[f"residual_by_layers{name}"] = _points(
            [x for x, good in zip(layers, finite, strict=True) if good], medians[medians.isfinite()].tolist()
        )
        if self.tally.norms:
            series[f"activation_norm{name}"] = _points([float(i + 1) for i in range(len(self.tally.norms))], self.tally.norms)
        values, place = difficulty_values(joined["difficulty"])
        if len(values) > 1:
            sizes = torch.bincount(place, minlength=len(values)).double()
            series[f"items_by_difficulty{name}"] = _points(values, sizes.tolist())
            for key, source in (("effective_layers", "effective_layers"), ("exact_accuracy", "exact")):
                sums = torch.zeros(len(values), dtype=torch.float64).index_add_(0, place, joined[source])
                series[f"{key}_by_difficulty{name}"] = _points(values, (sums / sizes).tolist())
        document = {"evaluation": own.model_dump(mode="json"), "metrics": metrics, "series": series}
        submission = self.task.submission(joined["rows"], joined["answers"], joined["confidence"])
        return document if submission is None else document | {"submission": submission}


class Reader:
    """Reads a block's answers at the marks while it is solved, and its activation norms where they are wanted."""

    def __init__(self, measurement: Measurement, batch: PuzzleBatch) -> None:
        self._of, self._batch = measurement, batch
        self._iteration = 0
        self._found: dict[str, list[Tensor]] = {"exact": [], "share": [], "residual": []}
        self._norms = measurement.tally.norms
        self._records_norms = not self._norms

    def probe(self) -> Any:
        """Records the mean norm of a token after each layer, until one is not finite: for the first block only."""
        return self._record if self._records_norms and len(self._norms) < NORM_LAYERS else None

    def _record(self, z: Tensor) -> None:
        value = float(z.double().norm(dim=-1).mean())
        if not value < float("inf"):
            self._records_norms = False
        elif self._records_norms and len(self._norms) < NORM_LAYERS:
            self._norms.append(value)

    def watch(self, state: Iterate, halted: Tensor) -> None:
        """After each iteration."""
        self._iteration += 1
        if self._iteration in self._of.marks or bool(halted.all()):
            logits = self._of.model.decode(state.z)[0]
            targets = self._batch.targets
            self._latest = {
                "exact": exact_rows(logits, targets).double(),
                "share": right_share(logits, targets),
                "residual": state.residual.double(),
            }
        if self._iteration in self._of.marks:
            for name, values in self._latest.items():
                self._found[name].append(values)

    def finished(self) -> dict[str, Tensor]:
        """``[marks, rows]`` each; marks after the last iteration hold what the last one left."""
        for name, values in self._found.items():
            values += [self._latest[name]] * (len(self._of.marks) - len(values))
        return {name: torch.stack(values) for name, values in self._found.items()}


def exact_rows(logits: Tensor, targets: Tensor) -> Tensor:
    """Bool ``[rows]``: every scored position is right."""
    return ((logits.argmax(dim=-1) == targets) | (targets == UNSCORED)).all(dim=-1)


def right_share(logits: Tensor, targets: Tensor) -> Tensor:
    """Float64 ``[rows]``: share of the scored positions that are right."""
    scored = targets != UNSCORED
    return ((logits.argmax(dim=-1) == targets) & scored).sum(dim=-1).double() / scored.sum(dim=-1).clamp(min=1)


def difficulty_values(difficulty: Tensor) -> tuple[list[float], Tensor]:
    """(Values in ascending order, place of each item among them); the centres of occupied bins where values are many."""
    values, place = difficulty.unique(return_inverse=True)
    if len(values) > DISTINCT:
        low, high = float(values[0]), float(values[-1])
        width = (high - low) / BINS
        bins = ((difficulty - low) / width).long().clamp(max=BINS - 1)
        occupied, place = bins.unique(return_inverse=True)
        values = low + (occupied.double() + 0.5) * width
    return values.tolist(), place


def evaluate_reasoner(
    model: Reasoner, task: PuzzleTask, cell: Cell, evaluations: Sequence[Evaluation], device: torch.device
) -> Documents:
    """Every evaluation by itself: gamma, patience and cap change the path, so none is a prefix of another."""
    model.eval()
    found: Documents = {}
    for evaluation in evaluations:
        own = narrow(evaluation, ReasonerEvaluation)
        found[evaluation] = Measurement(model, task, cell, own, device).document()
    return found


def _points(x: list[float], y: list[float]) -> dict[str, list[float]]:
    return {"x": x, "y": y}
