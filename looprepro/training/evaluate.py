"""Measure trained weights over budgets, without retraining: one pass through the loop, read out at each budget.

Evaluation words and x_0 come from streams of their own (looprepro/randomness.py), so measuring never moves training, and
a number does not depend on which other budgets were measured beside it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.cell import Cell, Evaluation, word_parts
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.tasks.task import Count, Task
from looprepro.training.dtypes import DTYPES
from looprepro.training.operator_geometry import operator_metrics

BLOCK = 256
"""Evaluation words per forward pass; part of what makes a number bit-reproducible, so a constant."""


def evaluate(
    model: LoopedTransformer, task: Task, cell: Cell, evaluations: Sequence[Evaluation], device: torch.device
) -> dict[Evaluation, dict[str, Any]]:
    """Metrics and series of each evaluation, as the store's documents want them: {"evaluation", "metrics", "series"}, and
    ``geometry_seconds``, the CPU time that the operator's geometry took for all budgets together."""
    documents: dict[Evaluation, dict[str, Any]] = {}
    by_items: dict[int, list[Evaluation]] = defaultdict(list)
    for evaluation in evaluations:
        by_items[evaluation.items].append(evaluation)
    for items, wanted in by_items.items():
        counts = _counts(model, task, cell, items, sorted({e.T for e in wanted}), device)
        seen = task.overlap(items)
        for evaluation in wanted:
            documents[evaluation] = _document(evaluation, counts[evaluation.T] | {"seen_in_training": seen})
    budgets = sorted({evaluation.T for evaluation in evaluations})
    began = time.process_time()
    geometry = operator_metrics(model.injection.matrix(), word_parts(cell)[1].injection.groups or 1, budgets)
    seconds = round(time.process_time() - began, 6)
    for evaluation, document in documents.items():
        document["metrics"] |= geometry[evaluation.T]
        document["geometry_seconds"] = seconds
    return documents


@torch.no_grad()
def _counts(
    model: LoopedTransformer, task: Task, cell: Cell, items: int, budgets: list[int], device: torch.device
) -> dict[int, dict[str, Count]]:
    """Sums over ``items`` evaluation words for each budget."""
    totals: dict[int, dict[str, Count]] = {budget: {} for budget in budgets}
    bfloat16 = cell.training.dtype == "bfloat16"
    model.eval()
    for start in range(0, items, BLOCK):
        rows = torch.arange(start, min(start + BLOCK, items), dtype=torch.int64)
        batch = task.evaluation_examples(rows.to(device))
        state = _initial_state(model, cell, rows, batch.tokens.shape[-1], device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            for budget, logits in model.readouts(batch.tokens, state, budgets):
                for name, count in task.metrics(logits, batch).items():
                    totals[budget][name] = totals[budget][name] + count if name in totals[budget] else count
    return totals


def _initial_state(model: LoopedTransformer, cell: Cell, rows: Tensor, time_steps: int, device: torch.device) -> Tensor:
    width = cell.model.width
    drawn = randomness.truncated_normal(cell.seed, randomness.EVALUATION_STATE, 0, rows, time_steps * width, device=device)
    return drawn.reshape(len(rows), time_steps, width).to(DTYPES[cell.training.dtype]) * model.state_std()


def _document(evaluation: Evaluation, counts: dict[str, Count]) -> dict[str, Any]:
    metrics, series = {}, {}
    for name, count in counts.items():
        mean = count.value.cpu()
        if mean.ndim == 0:
            metrics[name] = {"value": float(mean), "items": count.items}
        else:
            positions = [float(i) for i in range(1, len(mean) + 1)]
            series[f"{name}@T={evaluation.T}"] = {"x": positions, "y": mean.tolist()}
    return {"evaluation": evaluation.model_dump(mode="json"), "metrics": metrics, "series": series}
