"""The statistics of this project: mean and standard error over seeds, intervals, Welch's test, paired bootstrap, Holm.

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


@dataclass(frozen=True, slots=True)
class Difference:
    """A comparison of two samples: mean(a) - mean(b), its interval and the two-sided p-value (None where undefined)."""

    estimate: float
    low: float | None
    high: float | None
    p: float | None


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


def welch(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Difference:
    """Welch's t test for independent samples of unequal variance, with the interval for mean(a) - mean(b).

    Fewer than two values on a side, or two samples without any spread, leave interval and p undefined (None): the data
    then hold no estimate of the error.
    """
    estimate = mean(a) - mean(b)
    error_a, error_b = standard_error(a), standard_error(b)
    if error_a is None or error_b is None or error_a == error_b == 0.0:
        return Difference(estimate, None, None, None)
    variance = error_a**2 + error_b**2
    freedom = variance**2 / (error_a**4 / (len(a) - 1) + error_b**4 / (len(b) - 1))
    half = t_quantile(0.5 + level / 2, freedom) * math.sqrt(variance)
    return Difference(estimate, estimate - half, estimate + half, t_p_value(estimate / math.sqrt(variance), freedom))


def paired_bootstrap(
    a: Sequence[float], b: Sequence[float], *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Difference:
    """Percentile bootstrap over pairs (the same seed in both samples) for the mean of a - b.

    The p-value is twice the smaller share of resampled means on either side of zero, plus-one corrected so that it is
    never 0. Seeded: equal input gives equal output. Fewer than two pairs leave interval and p undefined.
    """
    if len(a) != len(b):
        raise ValueError(f"paired samples differ in length: {len(a)} and {len(b)}")
    differences = [x - y for x, y in zip(a, b, strict=True)]
    estimate = mean(differences)
    if len(differences) < 2:
        return Difference(estimate, None, None, None)
    import numpy as np

    generator = np.random.Generator(np.random.PCG64(seed))
    picks = generator.integers(0, len(differences), size=(resamples, len(differences)))
    means = np.asarray(differences, dtype=np.float64)[picks].mean(axis=1)
    low, high = (float(end) for end in np.quantile(means, [0.5 - level / 2, 0.5 + level / 2]))
    below, above = int((means <= 0).sum()), int((means >= 0).sum())
    return Difference(estimate, low, high, min(1.0, 2 * (min(below, above) + 1) / (resamples + 1)))


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


def t_p_value(statistic: float, freedom: float) -> float:
    """Two-sided p-value of a t statistic."""
    from scipy import special

    return float(2 * special.stdtr(freedom, -abs(statistic)))


_QUANTILES: dict[tuple[float, float], float] = {}
