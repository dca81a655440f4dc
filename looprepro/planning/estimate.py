"""Device hours that a cell will take: measured where cells like it are done, else arithmetic with an assumed speed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from looprepro.config.cell import Execution
from looprepro.config.costs import train_flops
from looprepro.config.presence import Presence
from looprepro.planning.expansion import PlannedCell

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


@dataclass(frozen=True, slots=True)
class Estimate:
    """Hours for the whole training of one cell, and what they rest on."""

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
    """Estimates for the cells of one plan."""

    def __init__(self, cells: Iterable[PlannedCell], present: Mapping[str, Presence]) -> None:
        self._measured: dict[str, float] = {}
        self._flops: dict[str, float | None] = {}
        hours: dict[str, list[float]] = {}
        examples: dict[str, PlannedCell] = {}
        for planned in cells:
            known = present.get(planned.id)
            if known is not None and known.status == "done" and known.hours:
                hours.setdefault(planned.configuration, []).append(known.hours)
                examples.setdefault(planned.configuration, planned)
        self._measured = {configuration: fmean(values) for configuration, values in hours.items()}
        rates: dict[Execution, list[float]] = {}
        for configuration, example in examples.items():
            flops = self._training_flops(example)
            if flops:
                rates.setdefault(example.execution, []).append(flops / self._measured[configuration])
        self._rates = {execution: fmean(values) for execution, values in rates.items()}
        """Operations per hour that done cells of this plan reached, by where they ran."""

    def training(self, planned: PlannedCell) -> Estimate:
        """Hours of training ``planned`` from the start."""
        measured = self._measured.get(planned.configuration)
        if measured is not None:
            return Estimate(measured, "measured")
        flops = self._training_flops(planned)
        if flops is None:
            return Estimate(None, "unknown")
        rate = self._rates.get(planned.execution)
        if rate is not None:
            return Estimate(flops / rate, "scaled")
        return Estimate(flops / assumed_rate(planned.execution, planned.cell.training.dtype) / 3600, "assumed")

    def _training_flops(self, planned: PlannedCell) -> float | None:
        if planned.configuration not in self._flops:
            self._flops[planned.configuration] = train_flops(planned.cell)
        return self._flops[planned.configuration]
