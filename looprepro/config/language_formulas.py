"""Steps, FLOPs and memory of a language model's cell by plain arithmetic. No torch. Conventions of config/formulas.py."""

from __future__ import annotations

import math
from collections.abc import Iterable

from looprepro.config.cell import Cell, Evaluation, LanguageEvaluation, LoopedTransformer, narrow, text_parts
from looprepro.config.formulas import (
    FLOAT_BYTES,
    VALUE_GATE_INPUTS,
    factor_flops,
    layers,
    mean_steps,
    outside_flops,
    parameters,
    readout_flops,
    step_flops,
    value_tables,
)

POLAR_ITERATIONS = 5
SPREAD = 4.0
"""Standard deviations above the mean at which the sampled depths of a micro-batch are provided for in memory."""
LOGIT_COPIES = 3
"""Float32 tensors of the logits' shape at the peak: the logits, their log-softmax, their gradient."""
LAMBADA_ITEMS = 5153
"""Passages of LAMBADA's test set."""
PASSAGE_TOKENS = 100
"""Tokens counted for a passage of last words; LAMBADA's have 75 words on average."""


def model_parameters(cell: Cell) -> int:
    """All parameters of the cell's model, a tied head counted once: 61,125,120 for the 60M model."""
    task, model, _ = text_parts(cell)
    return parameters(model, task.vocabulary)


def rows_per_step(cell: Cell) -> int:
    """Rows per optimiser step: 256 at 524,288 tokens of sequence 2048."""
    task, _, training = text_parts(cell)
    return training.batch_tokens // task.sequence


def schedule_steps(cell: Cell) -> int:
    """Steps that the schedules are made for: 9,155 for 4.8 billion tokens."""
    return text_parts(cell)[2].schedule_steps(model_parameters(cell))


def total_steps(cell: Cell) -> int:
    """Optimiser steps that are done: those of the schedule, unless ``parcae_compat.stop_one_step_early`` asks for one less."""
    early = text_parts(cell)[2].parcae_compat.stop_one_step_early
    return max(1, schedule_steps(cell) - int(early))


def tokens_per_parameter(cell: Cell) -> float:
    """Tokens of the whole run over parameters of the model."""
    return schedule_steps(cell) * text_parts(cell)[2].batch_tokens / model_parameters(cell)


# FLOPs --------------------------------------------------------------------------------------------------------------


def train_flops_per_step(cell: Cell) -> float:
    """One optimiser step, averaged over the sampled depths: all ranks together, Muon once."""
    task, model, training = text_parts(cell)
    without, with_gradient = mean_steps(model.recurrence)
    passes = 4.0 if training.activation_checkpointing == "per-iteration" else 3.0
    loop = (without + passes * with_gradient) * step_flops(model, task.sequence)
    outside = 3.0 * outside_flops(model, task.vocabulary, task.sequence)
    factors = -(-rows_per_step(cell) // training.micro_batch) * 3.0 * factor_flops(model.injection, model.width)
    return rows_per_step(cell) * (loop + outside) + factors + muon_flops(model)


def muon_flops(model: LoopedTransformer) -> float:
    """The Polar-Express iterations of one update: a Gram matrix, its square, and the product with the matrix, five times."""
    return sum(
        count * POLAR_ITERATIONS * (4.0 * min(shape) ** 2 * max(shape) + 2.0 * min(shape) ** 3)
        for shape, count in muon_matrices(model).items()
    )


def train_flops(cell: Cell) -> float:
    """The whole training run."""
    return total_steps(cell) * train_flops_per_step(cell)


def evaluation_flops(cell: Cell, evaluations: Iterable[Evaluation]) -> float:
    """The most it can be: the text may hold less than is asked for, and documents are counted as full rows. Evaluations that
    differ in T alone share one pass. Without the operator's geometry."""
    task, model, _ = text_parts(cell)
    budgets: dict[LanguageEvaluation, set[int]] = {}
    for evaluation in evaluations:
        wanted = narrow(evaluation, LanguageEvaluation)
        budgets.setdefault(wanted.model_copy(update={"T": 1}), set()).add(wanted.T)
    passage = min(PASSAGE_TOKENS, task.sequence)
    total = 0.0
    for alike, at in budgets.items():
        rows = alike.items + alike.documents if "perplexity" in alike.metrics else 0
        passages = (alike.questions or alike.documents) if "last_word" in alike.metrics else 0
        passages += (alike.questions or LAMBADA_ITEMS) if "lambada" in alike.metrics else 0
        once = rows * readout_flops(model, task.vocabulary, task.sequence, at)
        total += alike.draws * (once + passages * readout_flops(model, task.vocabulary, passage, at))
    return total


# Memory -------------------------------------------------------------------------------------------------------------


def muon_matrices(model: LoopedTransformer) -> dict[tuple[int, int], int]:
    """(rows, columns) -> matrices under Muon: q, k, v and the output, the MLP's way up and down, value gates."""
    width, hidden = model.width, model.mlp_width or 4 * model.width
    found: dict[tuple[int, int], int] = {}
    wanted = [((width, width), 4 * layers(model)), ((hidden, width), layers(model)), ((width, hidden), layers(model))]
    wanted.append(((model.heads, min(VALUE_GATE_INPUTS, width)), value_tables(model)))
    for shape, count in wanted:
        if count:
            found[shape] = found.get(shape, 0) + count
    return found


def optimizer_bytes(cell: Cell) -> int:
    """Two moments of every parameter under AdamW, momentum and one value per row or column of every matrix under Muon."""
    _, model, _ = text_parts(cell)
    matrices = muon_matrices(model)
    muon = sum(count * rows * columns for (rows, columns), count in matrices.items())
    variance = sum(count * max(shape) for shape, count in matrices.items())
    return FLOAT_BYTES * (2 * (model_parameters(cell) - muon) + muon + variance)


def state_bytes(cell: Cell) -> int:
    """Parameters, their gradients and the optimiser's state, in float32; every rank holds all of it."""
    return 2 * FLOAT_BYTES * model_parameters(cell) + optimizer_bytes(cell)


def activation_bytes(cell: Cell) -> float:
    """What the backward pass of one micro-batch holds at its peak, counted in float32 (bfloat16 autocast needs less).

    Layers as in :func:`looprepro.config.formulas.activation_bytes`. The depths of a micro-batch are taken :data:`SPREAD`
    standard deviations of their sum above the mean. A checkpointed step holds its state, and one step is whole at a time.
    """
    task, model, training = text_parts(cell)
    _, mean = mean_steps(model.recurrence)
    limit = model.recurrence.backprop_depth
    spread = 0.0 if model.recurrence.scheme == "fixed" else SPREAD * math.sqrt(model.recurrence.mean / training.micro_batch)
    steps = mean + spread if limit is None else min(float(limit), mean + spread)
    layer = 14 * model.width + 2 * (model.mlp_width or 4 * model.width)
    core = model.core_layers * layer
    loop = steps * model.width + core if training.activation_checkpointing == "per-iteration" else steps * (core + model.width)
    around = (model.prelude_layers + model.coda_layers) * layer + 6 * model.width + value_tables(model) * model.width
    per_position = loop + around + LOGIT_COPIES * task.vocabulary
    return FLOAT_BYTES * training.micro_batch * task.sequence * per_position


def memory_bytes(cell: Cell) -> float:
    """Of one rank while training: state and the activations of a micro-batch."""
    return state_bytes(cell) + activation_bytes(cell)
