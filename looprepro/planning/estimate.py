"""Device hours that a cell will take: measured where cells like it are done, else arithmetic with an assumed speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from statistics import fmean
from typing import Literal

from looprepro.config.cell import Execution
from looprepro.config.costs import evaluation_flops, total_steps, train_flops
from looprepro.config.presence import Presence
from looprepro.planning.expansion import PlannedCell, PlannedEvaluation

Basis = Literal["measured", "scaled", "assumed", "unknown"]

GPU_FLOPS = 67e12
"""Peak float32 rate of an H100 SXM outside its tensor cores, operations per second (vendor's data sheet)."""
GPU_BFLOAT16_FLOPS = 989e12
"""Peak dense bfloat16 rate of the same GPU's tensor cores."""
CORE_FLOPS = 100e9
"""Peak float32 rate of one CPU core: 3 GHz x 2 units x 8 lanes x 2 operations (multiply, add), rounded up. Square products
reach 105 to 114e9 on the machine of the benchmarks (benchmarks/results/matmul_fraction.json)."""
FRACTION_OF_PEAK = 0.3
"""Assumed share of a GPU's peak that training reaches: a guess for plans (docs/assumptions.md); measured cells replace it."""
CPU_FRACTION_OF_PEAK = 0.5
"""The same of a CPU. Measured at scale mini: 0.62 to 0.66 on group words with the loops in C (the same file), 0.4 to 0.55 on
the cells of table4, 0.4 on those of fprm_depth, whose loops are torch's. Without a C compiler about half of it."""

STEP_SECONDS = 0.005
"""Assumed to be the least that an update takes, however small the model: starting a few hundred kernels or operations."""
MOSTLY_MEASURING = 0.25
"""Share of the operations of training from which on measuring blurs the rate of a configuration."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hours for what a plan does about one cell, and what they rest on."""

    hours: float | None
    basis: Basis


def peak(execution: Execution, dtype: str = "float32") -> float:
    """Peak operations per second of one device that a cell runs on; ``auto`` is costed as the GPU that the paper used."""
    if execution.device == "cpu":
        return CORE_FLOPS * execution.threads
    return GPU_BFLOAT16_FLOPS if dtype == "bfloat16" else GPU_FLOPS


def assumed_rate(execution: Execution, dtype: str = "float32") -> float:
    """Operations per second that training is assumed to reach on one device."""
    return (CPU_FRACTION_OF_PEAK if execution.device == "cpu" else FRACTION_OF_PEAK) * peak(execution, dtype)


class Estimator:
    """Estimates for the cells of one plan. Nothing is computed before the first one is asked for."""

    def __init__(self, cells: Iterable[PlannedCell], present: Mapping[str, Presence]) -> None:
        self._cells, self._present = tuple(cells), present
        self._training: dict[str, float | None] = {}

    def hours(self, planned: PlannedCell, missing: Iterable[PlannedEvaluation], left: float) -> Estimate:
        """Device hours of ``left`` (0 to 1) of the training of ``planned`` and of measuring ``missing`` on its weights."""
        operations = self._operations(planned, missing, left)
        if operations is None:
            return Estimate(None, "unknown")
        if (rate := self._rates.get(planned.configuration)) is not None:
            return Estimate(operations / rate, "measured")
        if (rate := self._elsewhere.get(planned.execution)) is not None:
            return Estimate(operations / rate, "scaled")
        arithmetic = operations / assumed_rate(planned.execution, planned.cell.training.dtype)
        return Estimate(max(arithmetic, left * total_steps(planned.cell) * STEP_SECONDS) / 3600, "assumed")

    @cached_property
    def _rates(self) -> dict[str, float]:
        """Configuration -> operations per hour that its done cells reached, by the count of :meth:`_operations`."""
        operations: dict[str, list[float]] = {}
        hours: dict[str, list[float]] = {}
        for planned in self._cells:
            known = self._present.get(planned.id)
            if known is None or known.status != "done" or not known.hours:
                continue
            # The hours of archived rows are those of training alone.
            measured = [] if known.archived else [e for e in planned.evaluations if e.id in known.evaluations]
            if whole := self._operations(planned, measured, 1.0):
                operations.setdefault(planned.configuration, []).append(whole)
                hours.setdefault(planned.configuration, []).append(known.hours)
        return {configuration: fsum(done) / fsum(hours[configuration]) for configuration, done in operations.items()}

    @cached_property
    def _elsewhere(self) -> dict[Execution, float]:
        """Where cells run -> operations per hour that done configurations of this plan reached there, on average.

        Measuring is counted at most, so a configuration that mostly measures may look much faster than the device is, and
        says nothing about others.
        """
        examples = {planned.configuration: planned for planned in self._cells}
        found: dict[Execution, list[float]] = {}
        for configuration, rate in self._rates.items():
            planned = examples[configuration]
            measuring = self._operations(planned, planned.evaluations, 0.0) or 0.0
            if measuring < MOSTLY_MEASURING * (self._training[configuration] or 0.0):
                found.setdefault(planned.execution, []).append(rate)
        return {execution: fmean(rates) for execution, rates in found.items()}

    def _operations(self, planned: PlannedCell, evaluations: Iterable[PlannedEvaluation], left: float) -> float | None:
        """Rank 0 measures alone while the other ranks hold their devices."""
        if planned.configuration not in self._training:
            self._training[planned.configuration] = train_flops(planned.cell)
        training = self._training[planned.configuration]
        measuring = evaluation_flops(planned.cell, [e.evaluation for e in evaluations])
        if training is None or measuring is None:
            return None
        return left * training + planned.execution.ranks * measuring
