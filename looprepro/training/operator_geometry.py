"""What a run records of its trained state map A: spectra, Gram matrices to draw, and the geometry at each budget.

Measured in float64 on the CPU, after training; seeded probes, so nothing here moves a training stream (Rotate the Loop,
appendix B: eq. 8; P3.4, P3.5).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from looprepro.config.cell import LoopedTransformer
from looprepro.geometry.gram import gram
from looprepro.geometry.operator import GeometryError
from looprepro.geometry.powers import powers
from looprepro.geometry.probes import COUNT, blockwise, sphere
from looprepro.geometry.spectrum import spectrum
from looprepro.geometry.toeplitz import blockwise_defects, mean_defects
from looprepro.models.injections import Injection

DRAWN_BUDGET = 32
"""T of the drawn Gram matrices where the recurrence has no maximum."""


def operator_series(config: LoopedTransformer, initial: Injection, trained: Injection) -> dict[str, Any]:
    """Series of series.json: ``spectrum@0`` and ``spectrum`` (Figure 3: x real, y imaginary part), ``gram@sphere`` and
    ``gram@group`` (Figure 2: y the (T + 1)^2 cosines row by row, x their number) of one probe on the whole sphere and of
    the same probe inside the first group."""
    series: dict[str, Any] = {}
    for name, injection in (("spectrum@0", initial), ("spectrum", trained)):
        values = spectrum(injection.matrix())
        series[name] = {"x": values.real.tolist(), "y": values.imag.tolist()}
    matrix, groups = trained.matrix(), config.injection.groups or 1
    width, budget = matrix.shape[0], config.recurrence.maximum or DRAWN_BUDGET
    probes = {"gram@sphere": sphere(width, 1), "gram@group": blockwise(width, groups, 1)[0]}
    for name, probe in probes.items():
        try:
            cosines = gram(matrix, probe, budget).flatten().tolist()
        except GeometryError as error:
            print(f"no {name}: {error}", flush=True)
            continue
        series[name] = {"x": [float(i) for i in range(len(cosines))], "y": cosines}
    return series


def operator_metrics(matrix: Tensor, groups: int, budgets: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Budget T -> metrics of the operator over 256 probes, as evaluations store them.

    ``defect_sphere`` and ``defect_blockwise``: eq. 8 for probes on the whole sphere and inside one of ``groups`` groups.
    ``turning``: mean sine of the angle between A^(T-1) u and A^T u, which vanishes where the direction collapses (C39).
    ``log_contraction``: mean of log|A^T u| / T, negative where the norm shrinks.
    None of them where A has no powers to measure (it maps a probe to zero), no ``defect_blockwise`` where A mixes the groups:
    what is printed then says so.
    """
    try:
        travelled = powers(matrix, sphere(matrix.shape[0]), max(budgets))
    except GeometryError as error:
        print(f"geometry not measured: {error}", file=sys.stderr, flush=True)
        return {budget: {} for budget in budgets}
    on_sphere = mean_defects(travelled.gram(), budgets)
    turning = travelled.turning().mean(dim=1)
    logs = travelled.log_norms.mean(dim=1)
    found: dict[int, dict[str, Tensor | float]] = {
        T: {"defect_sphere": on_sphere[T], "turning": turning[T - 1], "log_contraction": logs[T] / T} for T in budgets
    }
    try:
        # One group: the same probes. Else each block takes its own powers, at 1/G of the price of the whole.
        inside = on_sphere if groups == 1 else blockwise_defects(matrix, groups, budgets)
    except GeometryError as error:
        print(f"no defect_blockwise: {error}", file=sys.stderr, flush=True)
    else:
        for T in budgets:
            found[T]["defect_blockwise"] = inside[T]
    return {
        T: {name: {"value": float(value), "items": COUNT} for name, value in metrics.items()} for T, metrics in found.items()
    }
