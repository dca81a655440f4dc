"""Parameters, FLOPs and memory of reasoners by plain arithmetic, for plans and estimates. No torch.

Parameter counts are exact. FLOPs count 2 per multiply-add of matrix products, attention over the causal half only where there
is a mask; a step with gradient costs three times its forward pass.
"""

from __future__ import annotations

from looprepro.config.reasoners import FixedPointReasoner, RecursiveModel, gated_width, mixing_width

Model = FixedPointReasoner | RecursiveModel


# Parameters ---------------------------------------------------------------------------------------------------------


def loop_parameters(model: Model, time: int) -> int:
    """One loop: layers, convolution, scaling, injection."""
    from looprepro.config.formulas import injection_parameters

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
    return model.layers * (mixer + mlp) + taps * width + scales + (injection_parameters(bridge, width) if bridge else 0)


def parameters(model: Model, vocabulary: int, time: int) -> int:
    """All trained by the main optimiser: without the puzzle table. FPRM has 6,833,666 on Sudoku (vocabulary 11, 81 cells)."""
    width = model.width
    halting = 2 * width + 2
    if isinstance(model, RecursiveModel) and model.method == "attractor":
        blocks = model.backbone_layers + model.layers
        block = 4 * width * width + 2 * width * round(model.expansion * width) + 2 * width
        return blocks * block + 2 * width * model.layers + width + vocabulary * width + halting
    networks = 2 if isinstance(model, RecursiveModel) and model.method == "hrm" else 1
    return networks * loop_parameters(model, time) + 2 * vocabulary * width + halting
