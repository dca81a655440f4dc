"""Parameters, FLOPs and memory of a cell by plain arithmetic, for plans and estimates. No torch.

Parameter counts are exact. FLOPs count 2 per multiply-add of matrix products (attention over the causal half only) and of
the operator; norms, activations and the softmax are left out. A step with gradient costs three times its forward pass.
Depths enter by their mean over the sampled distribution, since the depth loop computes no row beyond its depth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from looprepro.config.cell import Cell, Evaluation, GroupWordsTask, Injection, LoopedTransformer, Recurrence, word_parts
from looprepro.config.curriculum import Curriculum

FLOAT_BYTES = 4
VALUE_GATE_INPUTS = 32
"""Coordinates of the normed block input that a value gate reads."""


def group_order(name: str) -> int:
    """Elements of S_n (n!), A_n (n!/2) or Z_n (n): 60 for "A5"."""
    kind, n = name[0], int(name[1:])
    if kind == "Z":
        return n
    return math.factorial(n) if kind == "S" else max(math.factorial(n) // 2, 1)


def vocabulary(task: GroupWordsTask) -> int:
    """Token ids of the task: the elements and the start token, used or not."""
    return group_order(task.group) + 1


def positions(task: GroupWordsTask, length: int | None = None) -> int:
    """Positions of a word of ``length`` letters (default: n), the start token included."""
    return (task.length if length is None else length) + int(task.start_token)


# Parameters ---------------------------------------------------------------------------------------------------------


def injection_parameters(injection: Injection, width: int) -> int:
    """Free parameters of the injection, B included (rotate_the_loop table of section 1; a fixed decay drops one per rate).

    A user's own operator is counted by its B alone, since its class is not loaded here.
    """
    groups = injection.groups or width
    rates = groups * (1 if injection.decay == "fixed" else 2)
    matrix = width * width
    if injection.method in ("diagonal", "grouped_diagonal"):
        return matrix + rates
    if injection.method != "conformal":
        return matrix
    block = width // groups
    if injection.chart == "cayley":
        return matrix + rates + groups * block * (block - 1) // 2
    if injection.chart == "householder":
        return matrix + rates + groups * block * block
    return matrix + rates + width // 2


def layers(model: LoopedTransformer) -> int:
    """Distinct layers: prelude, core, coda."""
    return model.prelude_layers + model.core_layers + model.coda_layers


def value_tables(model: LoopedTransformer) -> int:
    """Layers with a value table and gate: every second one, counted back from the last."""
    return (layers(model) + 1) // 2 if model.value_embeddings else 0


def parameters(model: LoopedTransformer, vocabulary: int) -> int:
    """All parameters, a tied head counted once. Parcae's closed form with free sizes: 144,323,136 for its 140M model."""
    width, mlp = model.width, _mlp_width(model)
    layer = 4 * width * width + 2 * width * mlp + 2 * width
    table = vocabulary * width + min(VALUE_GATE_INPUTS, width) * model.heads
    return (
        vocabulary * width * (1 if model.tied_head else 2)
        + injection_parameters(model.injection, width)
        + width * width  # C
        + 2 * width  # norms after the prelude and before the head
        + layers(model) * layer
        + value_tables(model) * table
    )


# Recurrence ---------------------------------------------------------------------------------------------------------


def mean_steps(recurrence: Recurrence) -> tuple[float, float]:
    """(mean steps without gradient, mean steps with gradient) of a training sequence.

    Poisson(24) conditioned on 1..32 has mean 23.5; Parcae's sampler at mean 8 with 4 steps of gradient gives 4.06 and 3.94.
    """
    masses = _depth_masses(recurrence)
    limit = recurrence.backprop_depth
    with_gradient = sum(mass * (depth if limit is None else min(depth, limit)) for depth, mass in masses.items())
    return sum(mass * depth for depth, mass in masses.items()) - with_gradient, with_gradient


def _depth_masses(recurrence: Recurrence) -> dict[int, float]:
    """Probability of each depth."""
    if recurrence.scheme == "fixed":
        return {_top(recurrence): 1.0}
    mean = recurrence.mean
    if recurrence.scheme == "poisson-truncated-full":
        mean = max(mean, float(recurrence.backprop_depth or 0))

    def mass(count: int) -> float:
        return math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))

    if recurrence.scheme == "poisson-conditioned":
        inside = {depth: mass(depth) for depth in range(1, _top(recurrence) + 1)}
    else:
        inside = {depth: mass(depth) for depth in range(1, math.ceil(mean + 12.0 * math.sqrt(mean) + 40.0))}
        inside[1] += mass(0)  # clamped below at 1
    total = sum(inside.values())
    return {depth: probability / total for depth, probability in inside.items()}


def _top(recurrence: Recurrence) -> int:
    assert recurrence.maximum is not None, "config.Recurrence guarantees it"
    return recurrence.maximum


# FLOPs --------------------------------------------------------------------------------------------------------------


def layer_flops(model: LoopedTransformer, time: int) -> float:
    """Forward pass of one layer on one sequence of ``time`` positions, without a value gate."""
    width = model.width
    products = 8 * width * width + 4 * width * _mlp_width(model)
    attention = 4 * width * (time + 1) / 2
    return time * (products + attention)


def step_flops(model: LoopedTransformer, time: int) -> float:
    """Forward pass of one recurrent step on one sequence: the operator and the core."""
    injection, width = model.injection, model.width
    if injection.method == "conformal":
        block = width // (injection.groups or 1)
        operator = 6 * (width // 2) if injection.chart == "pairwise" else 2 * width * block
    else:
        operator = 2 * width
    return time * (operator + width) + model.core_layers * layer_flops(model, time)


def outside_flops(model: LoopedTransformer, vocabulary: int, time: int) -> float:
    """Forward pass on one sequence of everything outside the loop: prelude, B, C, coda, head."""
    width = model.width
    around = (model.prelude_layers + model.coda_layers) * layer_flops(model, time)
    return around + time * (4 * width * width + 2 * width * vocabulary)


def factor_flops(injection: Injection, width: int) -> float:
    """Building the orthogonal factor once per forward pass, to leading order: LU and solve, or QR with its factor."""
    if injection.method != "conformal" or injection.chart == "pairwise":
        return 0.0
    groups = injection.groups or 1
    return groups * 8 / 3 * (width / groups) ** 3


def train_flops_per_step(cell: Cell) -> float:
    """One optimiser step, averaged over the curriculum and the sampled depths."""
    task, model, training = word_parts(cell)
    without, with_gradient = mean_steps(model.recurrence)
    words = vocabulary(task)

    def sequence(time: int) -> float:
        loop = (without + 3.0 * with_gradient) * step_flops(model, time)
        return loop + 3.0 * outside_flops(model, words, time)

    lengths = Curriculum.of(task.curriculum, task.length, training.steps).lengths
    mean = sum(sequence(positions(task, length)) for length in lengths) / len(lengths)
    return training.batch * mean + 3.0 * factor_flops(model.injection, model.width)


def train_flops(cell: Cell) -> float:
    """The whole training run."""
    return word_parts(cell)[2].steps * train_flops_per_step(cell)


def readout_flops(model: LoopedTransformer, vocabulary: int, time: int, budgets: Collection[int]) -> float:
    """One sequence read out at each of ``budgets`` (different ones) in one pass of max(budgets) steps."""
    width = model.width
    reading = model.coda_layers * layer_flops(model, time) + time * (2 * width * width + 2 * width * vocabulary)
    once = outside_flops(model, vocabulary, time) - reading + max(budgets) * step_flops(model, time)
    return once + len(budgets) * reading


def evaluation_flops(cell: Cell, evaluations: Iterable[Evaluation]) -> float:
    """Words of full length; evaluations of equally many words share one pass. Without the operator's geometry."""
    task, model, _ = word_parts(cell)
    budgets: dict[int, set[int]] = {}
    for evaluation in evaluations:
        budgets.setdefault(evaluation.items, set()).add(evaluation.T)
    time, words = positions(task), vocabulary(task)
    return sum((items * readout_flops(model, words, time, wanted) for items, wanted in budgets.items()), 0.0)


# Memory -------------------------------------------------------------------------------------------------------------


def activation_bytes(cell: Cell) -> float:
    """What the backward pass of one optimiser step at full length holds, in float32: an estimate, good to about a quarter.

    Per layer and position: the block's input and the two normed inputs, q, k, v, rotated and normalised q and k, the attention
    output, the residual in between (14 d in all), and the MLP's hidden layer before and after squaring (2 hidden widths).
    Rows beyond the mean depth are paid by rows below it, since finished rows leave the loop.
    """
    task, model, training = word_parts(cell)
    _, with_gradient = mean_steps(model.recurrence)
    return activation_bytes_of(model, vocabulary(task), training.batch * positions(task), with_gradient)


def activation_bytes_of(model: LoopedTransformer, vocabulary: int, positions: int, with_gradient: float) -> float:
    """The same for so many positions in all and so many recurrent steps with gradient."""
    layer = 14 * model.width + 2 * _mlp_width(model)
    applied = model.prelude_layers + model.coda_layers + with_gradient * model.core_layers
    per_position = applied * layer + with_gradient * model.width + 6 * model.width + 3 * vocabulary
    return FLOAT_BYTES * positions * per_position


def memory_bytes(cell: Cell) -> float:
    """Parameters, gradients and Adam's two moments (16 bytes a parameter) and the activations."""
    task, model, _ = word_parts(cell)
    return 4 * FLOAT_BYTES * parameters(model, vocabulary(task)) + activation_bytes(cell)


def _mlp_width(model: LoopedTransformer) -> int:
    return model.mlp_width or 4 * model.width
