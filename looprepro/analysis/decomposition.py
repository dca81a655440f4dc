"""C11 as a small table: what tying rates, rotating, and both gain over the diagonal, and what both gain beyond the sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from looprepro.analysis.claim_samples import Samples
from looprepro.analysis.evidence import independent
from looprepro.analysis.statistics import mean

TYING, ROTATING, BOTH, DIAGONAL = (
    {"sweep": "table2", "method": "G=2"},
    {"sweep": "table1", "method": "d/2"},
    {"sweep": "table1", "method": "G=2"},
    {"sweep": "table1", "method": "diagonal"},
)
EFFECTS = {
    "tying (grouped diagonal, G = 2)": ((1, TYING), (-1, DIAGONAL)),
    "rotating (conformal, G = d/2)": ((1, ROTATING), (-1, DIAGONAL)),
    "both (conformal, G = 2)": ((1, BOTH), (-1, DIAGONAL)),
    "both beyond the sum": ((1, BOTH), (-1, TYING), (-1, ROTATING), (1, DIAGONAL)),
}
"""Effect -> the samples whose means make it."""
STATED = {
    "tying (grouped diagonal, G = 2)": 0.118,
    "rotating (conformal, G = d/2)": 0.049,
    "both (conformal, G = 2)": 0.202,
}
"""The paper's numbers, at T_max and scale paper (section 5.2)."""


@dataclass(frozen=True)
class Gain:
    """One entry. All None where a sample is empty; an interval needs two seeds on every side."""

    effect: str
    T: str
    """Role of the budget."""
    value: float | None
    low: float | None
    high: float | None
    n: int
    stated: float | None


def decomposition(samples: Samples, group: str = "A5") -> list[Gain]:
    """The gains at every budget of Table 1 at this scale, effects within budgets; empty where the tables do not exist."""
    return [
        _gain(samples, effect, terms, {"group": group, "T": T})
        for T in samples.roles("table1", "T")
        for effect, terms in EFFECTS.items()
    ]


def _gain(samples: Samples, effect: str, terms: Sequence[tuple[int, dict[str, str]]], shared: dict[str, str]) -> Gain:
    found = [samples.select(shared | selector).values for _, selector in terms]
    stated = STATED.get(effect) if shared["T"] == "T_max" else None
    if not all(found):
        return Gain(effect, shared["T"], None, None, None, 0, stated)
    weights = [float(weight) for weight, _ in terms]
    value = math.fsum(weight * mean(list(sample.values())) for weight, sample in zip(weights, found, strict=True))
    evidence = independent(found, weights)
    low, high = evidence.interval if evidence else (None, None)
    return Gain(effect, shared["T"], value, low, high, min(map(len, found)), stated)
