"""The staged curriculum: word lengths 2, 4, 8, ..., n in equal slices of training (Rotate the Loop, section 5.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Curriculum:
    """Which length is trained at which step.

    The lengths are the powers of two below n, from 2, and then n itself, whether or not it is a power of two. With k
    lengths, step s of S belongs to slice floor(s k / S): slices differ by at most one step where k does not divide S.
    Where S < k only the last S lengths are used, one step each, so that training always ends at n.
    """

    lengths: tuple[int, ...]
    """Ascending; the last one is n."""
    steps: int
    """Optimiser steps of training."""

    @classmethod
    def doubling(cls, longest: int, steps: int) -> Curriculum:
        """2, 4, 8, ..., ``longest`` over ``steps`` steps."""
        powers = [2**k for k in range(1, longest.bit_length()) if 2**k < longest]
        lengths = (*powers, longest)
        return cls(lengths[-steps:], steps)

    @classmethod
    def of(cls, kind: Literal["doubling", "none"], longest: int, steps: int) -> Curriculum:
        """By the task's key ``curriculum``."""
        return (cls.doubling if kind == "doubling" else cls.none)(longest, steps)

    @classmethod
    def none(cls, longest: int, steps: int) -> Curriculum:
        """``longest`` throughout."""
        return cls((longest,), steps)

    def length(self, step: int) -> int:
        """The length at ``step`` (from 0); past the end of training, n."""
        return self.lengths[min(step * len(self.lengths) // self.steps, len(self.lengths) - 1)]

    def first_full_step(self) -> int:
        """The first step that trains words of length n: ceil((k - 1) S / k)."""
        count = len(self.lengths)
        return -(-(count - 1) * self.steps // count)
