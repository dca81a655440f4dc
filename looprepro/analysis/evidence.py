"""What seeds say about an effect: a weighted sum of means, by Welch's method, or paired by seed.

One interface for both, so that a claim asks either the same questions: how sure is it that the effect lies above or below a
bound? All p-values here are one-sided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from looprepro.analysis.statistics import mean, standard_error, t_quantile

if TYPE_CHECKING:
    import numpy

RESAMPLES = 10_000
FEWEST_RESAMPLED = 6
"""Seeds from which on a paired comparison resamples: of five equal signs a bootstrap can say no more than 2 * 2^-5 > 0.05."""
Sample = Mapping[int, float]
"""Seed -> value."""


class Evidence(Protocol):
    """An estimated effect and how sure it is."""

    @property
    def statistic(self) -> str:
        """Name of the method."""

    @property
    def effect(self) -> float:
        """The estimate."""

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% interval, two-sided, for this effect alone."""

    def p_above(self, bound: float) -> float:
        """p-value against "the effect is at most ``bound``"."""

    def p_below(self, bound: float) -> float:
        """p-value against "the effect is at least ``bound``"."""


@dataclass(frozen=True)
class Welch:
    """A weighted sum of independent means; degrees of freedom by Welch and Satterthwaite. One sample, or one difference per
    seed: Student's t."""

    effect: float
    error: float
    freedom: float
    statistic: str = "Welch"

    @property
    def interval(self) -> tuple[float, float]:
        half = t_quantile(0.975, self.freedom) * self.error
        return self.effect - half, self.effect + half

    def p_above(self, bound: float) -> float:
        return _upper_tail((self.effect - bound) / self.error, self.freedom)

    def p_below(self, bound: float) -> float:
        return _upper_tail((bound - self.effect) / self.error, self.freedom)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Resampled means of one value per seed.

    No p-value is smaller than 2^-n, what n equal signs can say: over four seeds the plain bootstrap would call any four
    equal signs certain.
    """

    effect: float
    n: int
    means: numpy.ndarray
    statistic: str = "paired bootstrap"

    @property
    def interval(self) -> tuple[float, float]:
        import numpy as np

        low, high = np.quantile(self.means, [0.025, 0.975])
        return float(low), float(high)

    def p_above(self, bound: float) -> float:
        return self._p(int((self.means <= bound).sum()))

    def p_below(self, bound: float) -> float:
        return self._p(int((self.means >= bound).sum()))

    def _p(self, contrary: int) -> float:
        return max((contrary + 1) / (len(self.means) + 1), 0.5**self.n)


def independent(samples: Sequence[Sample], weights: Sequence[float]) -> Welch | None:
    """Evidence on sum of weight times mean. None where a sample has fewer than two seeds, or none has any spread."""
    terms = []
    for sample, weight in zip(samples, weights, strict=True):
        error = standard_error(list(sample.values()))
        if error is None:
            return None
        terms.append(((weight * error) ** 2, len(sample) - 1))
    variance = math.fsum(part for part, _ in terms)
    if variance == 0.0:
        return None
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in terms)
    effect = math.fsum(weight * mean(list(s.values())) for s, weight in zip(samples, weights, strict=True))
    return Welch(effect, math.sqrt(variance), freedom, "Student" if len(samples) == 1 else "Welch")


def paired(samples: Sequence[Sample], weights: Sequence[float], *, seed: int = 0) -> Welch | Bootstrap | None:
    """Evidence on the mean over common seeds of the weighted sum: Student's t of these sums for fewer than
    :data:`FEWEST_RESAMPLED` seeds, resampled from there on. None for fewer than two common seeds, or where Student's t finds no
    spread. Seeded: equal input gives equal output."""
    import numpy as np

    common = common_seeds(samples)
    if len(common) < 2:
        return None
    sums = {k: math.fsum(weight * s[k] for s, weight in zip(samples, weights, strict=True)) for k in common}
    if len(common) < FEWEST_RESAMPLED:
        few = independent([sums], [1.0])
        return None if few is None else replace(few, statistic="paired Student")
    values = list(sums.values())
    generator = np.random.Generator(np.random.PCG64(seed))
    picks = generator.integers(0, len(values), size=(RESAMPLES, len(values)))
    return Bootstrap(mean(values), len(values), np.asarray(values, dtype=np.float64)[picks].mean(axis=1))


def common_seeds(samples: Sequence[Sample]) -> list[int]:
    """Seeds that every sample has."""
    return sorted(set.intersection(*(set(sample) for sample in samples)))


def _upper_tail(statistic: float, freedom: float) -> float:
    from scipy import special

    return float(special.stdtr(freedom, -statistic))
