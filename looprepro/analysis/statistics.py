"""The statistics of this project: mean and standard error over seeds, intervals, Holm's correction. Tests: evidence.py.

A sample is one number per distinct seed. Evaluation items are never samples: a thousand words of one trained model say
nothing about the next seed, so the number of items enters no formula here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """A sample in five numbers. ``se``, ``low`` and ``high`` are None for n = 1: one number has no spread."""

    n: int
    mean: float | None
    """None for n = 0."""
    se: float | None
    """s / sqrt(n), s with n - 1 in the denominator."""
    low: float | None
    """Lower end of the Student t interval for the mean."""
    high: float | None


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly (math.fsum), so the order of the values does not matter."""
    if not values:
        raise ValueError("the mean of no values is undefined")
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (ddof = 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def standard_error(values: Sequence[float]) -> float | None:
    """SE of the mean, s / sqrt(n); None for fewer than two values (never 0 for want of data)."""
    deviation = standard_deviation(values)
    return None if deviation is None else deviation / math.sqrt(len(values))


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student t confidence interval for the mean; None for fewer than two values."""
    error = standard_error(values)
    if error is None:
        return None
    half = t_quantile(0.5 + level / 2, len(values) - 1) * error
    centre = mean(values)
    return centre - half, centre + half


def summarise(values: Sequence[float], level: float = 0.95) -> Summary:
    """Everything an entry of a table says about its sample. ``values``: one finite number per distinct seed."""
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a sample holds a value that is not finite: a diverged seed is counted, not averaged")
    if not values:
        return Summary(0, None, None, None, None)
    interval = t_interval(values, level)
    low, high = interval if interval else (None, None)
    return Summary(len(values), mean(values), standard_error(values), low, high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given (family-wise error over all of them)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def t_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's t distribution."""
    key = (probability, freedom)
    if key not in _QUANTILES:  # a table asks for the same quantile hundreds of times
        from scipy import special

        _QUANTILES[key] = float(special.stdtrit(freedom, probability))
    return _QUANTILES[key]


_QUANTILES: dict[tuple[float, float], float] = {}
