"""One part of a claim, judged by itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Judged:
    """One part, judged by itself."""

    kind: str
    what: str
    """The comparison in one line."""
    n: int
    """Seeds of the smallest sample."""
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    statistic: str = ""
    p_for: float | None = None
    """One-sided; None where nothing can be tested."""
    p_against: float | None = None
    agrees: bool | None = None
    """Sign of the effect, for a single run."""
    lacking: str = ""
    """What data are missing."""
    withheld: str = ""
    """Why no test may decide yet: ``7 of 10 seeds so far and no verdict before all``."""
    broken: bool = False
    """Of a bound: some run is above it, which nothing to come can change."""
    diverged: int = 0
