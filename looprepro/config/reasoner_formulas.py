"""Parameters, FLOPs and memory of reasoners by plain arithmetic, for plans and estimates. No torch.

Parameter counts are exact. FLOPs count 2 per multiply-add of matrix products, attention over the causal half only where there
is a mask; a layer with gradient costs three times its forward pass.
"""

from __future__ import annotations

from collections.abc import Iterable

from looprepro.config import formulas
from looprepro.config.cell import (
    Cell,
    Evaluation,
    Execution,
    FixedPointReasoner,
    LoopedTransformer,
    ReasonerTraining,
    RecursiveModel,
    narrow,
)
from looprepro.config.puzzles import ArcTask, MazeTask, StateTrackingTask, SudokuTask
from looprepro.config.reasoners import gated_width, mixing_width

OPTIMIZER_BYTES = 16
"""Of a parameter: itself, its gradient, two moments."""
AUTO_BYTES = 28e9
"""What a cell with ``execution.micro_batch`` auto may need by :func:`memory_bytes`: two in 80 GB (``cells_per_job`` of
slurm/h100.yaml) even where the formula is a third too low, with a few GB left to PyTorch itself."""

Model = FixedPointReasoner | RecursiveModel
Puzzle = StateTrackingTask | SudokuTask | MazeTask | ArcTask


def reasoner_parts(cell: Cell) -> tuple[Puzzle, Model, ReasonerTraining]:
    """Task, model and training of a cell of the reasoner family."""
    model, task = cell.model, cell.task
    if not isinstance(model, FixedPointReasoner | RecursiveModel) or not isinstance(
        task, StateTrackingTask | SudokuTask | MazeTask | ArcTask
    ):
        raise TypeError(f"{type(model).__name__} on {type(task).__name__} is no reasoner on a puzzle")
    return task, model, narrow(cell.training, ReasonerTraining)


def method(model: Model) -> str:
    """ "fixed_point", or the recursive model's method."""
    return model.method if isinstance(model, RecursiveModel) else model.kind


# Parameters ---------------------------------------------------------------------------------------------------------


def loop_parameters(model: Model, time: int) -> int:
    """One loop: layers, convolution, scaling, injection."""
    width, hidden = model.width, gated_width(model.width, model.expansion)
    mixer, mlp = 4 * width * width, 3 * width * hidden
    if isinstance(model, RecursiveModel) and model.mixer == "mlp":
        positions = model.prefix + time
        mixer = 3 * positions * mixing_width(positions, model.expansion)
    if isinstance(model, RecursiveModel) and model.method == "urm":
        mlp += hidden * (model.gate_kernel + 1)
    taps = {"none": 0, "1d": model.kernel or 0, "2d": (model.kernel or 0) ** 2}[model.convolution]
    scaling = {"none": 0, "fixed": 0, "outer_only": width, "input_independent": 2 * width}
    scales = scaling.get(model.residual_scale, 2 * (width * width + width))
    bridge = model.injection if isinstance(model, FixedPointReasoner) else None
    return (
        model.layers * (mixer + mlp) + taps * width + scales + (formulas.injection_parameters(bridge, width) if bridge else 0)
    )


def parameters(model: Model, vocabulary: int, time: int) -> int:
    """All that the main optimiser trains: without the puzzle table. FPRM has 6,833,666 on Sudoku (vocabulary 11, 81 cells)."""
    width = model.width
    halting = 2 * width + 2
    if isinstance(model, RecursiveModel) and model.method == "attractor":
        blocks = model.backbone_layers + model.layers
        block = 4 * width * width + 2 * width * round(model.expansion * width) + 2 * width
        return blocks * block + 2 * width * model.layers + width + vocabulary * width + halting
    networks = 2 if method(model) == "hrm" else 1
    return networks * loop_parameters(model, time) + 2 * vocabulary * width + halting


# FLOPs --------------------------------------------------------------------------------------------------------------


def layers_per_iteration(model: Model) -> tuple[int, int]:
    """(layers without, layers with gradient) of one iteration in training; Attractor's solver at its limit."""
    if not isinstance(model, RecursiveModel):
        return 0, model.layers
    cycles, low, layers = model.high_cycles, model.low_cycles, model.layers
    if model.method == "attractor":
        return model.solver_iterations * layers, model.backbone_layers + 2 * layers
    if model.method == "hrm":
        return (cycles * (low + 1) - 2) * layers, 2 * layers
    calls = low if model.method == "urm" else low + 1
    return (cycles - 1) * calls * layers, calls * layers


def layer_flops(model: Model, positions: int, causal: bool) -> float:
    """Forward pass of one layer on one sequence."""
    width, hidden = model.width, gated_width(model.width, model.expansion)
    mlp = 4.0 * width * round(model.expansion * width) if method(model) == "attractor" else 6.0 * width * hidden
    if isinstance(model, RecursiveModel) and model.mixer == "mlp":
        return positions * mlp + 6.0 * width * positions * mixing_width(positions, model.expansion)
    seen = (positions + 1) / 2 if causal else positions
    return positions * (8.0 * width * width + mlp + 4.0 * width * seen)


def train_flops_per_step(cell: Cell) -> float:
    """One window of every slot, with the head and its gradient."""
    if isinstance(cell.model, LoopedTransformer):
        return _bridge_flops(cell, cell.model)
    task, model, training = reasoner_parts(cell)
    quiet, loud = layers_per_iteration(model)
    once = layer_flops(model, model.prefix + task.time, task.causal)
    applied = training.window * (quiet + 3.0 * loud) + (quiet + loud if training.continue_loss else 0)
    return training.batch * (applied * once + 6.0 * task.time * model.width * task.vocabulary)


def train_flops(cell: Cell) -> float:
    """The whole training run."""
    return narrow(cell.training, ReasonerTraining).steps * train_flops_per_step(cell)


def evaluation_flops(cell: Cell, evaluations: Iterable[Evaluation]) -> float:
    """Each evaluation in a run of its own, every item iterated up to the cap: the most it can be, since items halt."""
    if isinstance(cell.model, LoopedTransformer):
        once = formulas.step_flops(cell.model, narrow(cell.task, StateTrackingTask).evaluation_time + 1)
    else:
        task, model, _ = reasoner_parts(cell)
        once = sum(layers_per_iteration(model)) * layer_flops(model, model.prefix + task.evaluation_time, task.causal)
    return sum((evaluation.items * evaluation.T * once for evaluation in evaluations), 0.0)


# Memory -------------------------------------------------------------------------------------------------------------


def layer_bytes(model: Model, positions: int, narrow_type: bool) -> float:
    """What the backward pass of one layer holds per position, in float32 or (``narrow_type``) under bfloat16 autocast.

    Of d channels: normed inputs, q, k, v, the attention's output, twice the residual stream (8 d), rotated q and k (2 d), and
    where coefficients are learned the two factors of each, in float32; of the SwiGLU: gate, up, silu(gate) and product.
    """
    width, hidden = model.width, gated_width(model.width, model.expansion)
    element = 2 if narrow_type else 4
    per_channel = 8.0 * element + (2.0 * element if model.positions == "rope" else 0.0)
    if isinstance(model, RecursiveModel) and model.mixer == "mlp":
        per_channel = 4.0 * element * (1.0 + mixing_width(positions, model.expansion) / positions)
    if model.residual_scale != "none":
        per_channel += 8.0
    if model.norm == "peri":
        per_channel += 2.0 * (4.0 + (2.0 if narrow_type else 0.0))
    elif model.norm == "post" and narrow_type:
        per_channel += 8.0  # the norm's input stays in float32
    gates = 7 if method(model) == "urm" else 4
    return width * per_channel + gates * element * hidden


def activation_bytes(cell: Cell, slots: int | None = None) -> float:
    """What the backward pass of one window of ``slots`` (None: all) holds: an estimate, good to about a tenth."""
    task, model, training = reasoner_parts(cell)
    positions, narrow_type = model.prefix + task.time, training.dtype == "bfloat16"
    _, loud = layers_per_iteration(model)
    scaled, convolved = model.residual_scale != "none", model.convolution != "none"
    iteration = loud * layer_bytes(model, positions, narrow_type)
    iteration += model.width * ((4.0 if scaled else 0.0) + (2.0 if narrow_type else 4.0) * convolved)
    outside = 8.0 * model.width + 64.0 * task.vocabulary
    return (training.batch if slots is None else slots) * positions * (training.window * iteration + outside)


def carried_bytes(cell: Cell) -> float:
    """The states of all slots once, in float32."""
    batch = narrow(cell.training, ReasonerTraining).batch
    if isinstance(cell.model, LoopedTransformer):
        return 4.0 * batch * _bridge(cell)[1] * cell.model.width
    task, model, _ = reasoner_parts(cell)
    states = 1 if method(model) in ("fixed_point", "urm", "attractor") else 2
    return 4.0 * states * batch * (model.prefix + task.time) * model.width


def held_bytes(cell: Cell) -> float:
    """Parameters with gradients, moments and average, the puzzle table, and all slots' states before and after a window."""
    if isinstance(cell.model, LoopedTransformer):
        return _bridge_parameter_bytes(cell, cell.model) + 2 * carried_bytes(cell)
    task, model, training = reasoner_parts(cell)
    each = OPTIMIZER_BYTES + (4 if training.ema else 0) + (2 if training.dtype == "bfloat16" else 0)
    table = 4 * task.puzzle_identifiers * model.width if model.prefix else 0
    return parameters(model, task.vocabulary, task.time) * each + table + 2 * carried_bytes(cell)


def slots_at_once(cell: Cell, execution: Execution) -> int:
    """Slots that pass through the window together (``execution.micro_batch``); a last part may be smaller.

    ``auto``: the batch in as few parts as stay within :data:`AUTO_BYTES`, the parts as equal as whole numbers allow.
    """
    batch, wanted = narrow(cell.training, ReasonerTraining).batch, execution.micro_batch
    if wanted is None:
        return batch
    if wanted == "auto":
        fitting = int((AUTO_BYTES - held_bytes(cell)) // _activations(cell, 1))
        return -(-batch // -(-batch // max(1, fitting)))
    return min(batch, wanted)


def memory_bytes(cell: Cell, execution: Execution) -> float:
    """What is held all the time, and the activations of the slots that pass at once; or, between windows and where that is
    more, the states a third time, when slots are refilled and when the states of all parts are put together."""
    return held_bytes(cell) + max(_activations(cell, slots_at_once(cell, execution)), carried_bytes(cell))


def _activations(cell: Cell, slots: int) -> float:
    if isinstance(cell.model, LoopedTransformer):
        return _bridge_activations(cell, cell.model, slots)
    return activation_bytes(cell, slots)


# The bridge: a looped transformer that the solver halts --------------------------------------------------------------


def _bridge(cell: Cell) -> tuple[int, int, ReasonerTraining]:
    """(Token ids, positions, training); the start token is one more of each."""
    task = narrow(cell.task, StateTrackingTask)
    return task.vocabulary + 1, task.time + 1, narrow(cell.training, ReasonerTraining)


def _bridge_flops(cell: Cell, model: LoopedTransformer) -> float:
    words, time, training = _bridge(cell)
    once = training.window * formulas.step_flops(model, time) + formulas.outside_flops(model, words, time)
    return 3.0 * training.batch * once


def _bridge_parameter_bytes(cell: Cell, model: LoopedTransformer) -> float:
    words, _, training = _bridge(cell)
    return (formulas.parameters(model, words) + 2 * model.width + 2) * (OPTIMIZER_BYTES + (4 if training.ema else 0))


def _bridge_activations(cell: Cell, model: LoopedTransformer, slots: int) -> float:
    """As config/formulas.py counts them for a depth of one window."""
    words, time, training = _bridge(cell)
    return formulas.activation_bytes_of(model, words, slots * time, float(training.window))
