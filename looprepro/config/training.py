"""Optimisers and schedules: one frozen model per way of training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from looprepro.config.base import Frozen


class Training(Frozen):
    """A number of optimiser steps on whole batches. Adam without weight decay, as the paper states for group words."""

    kind: Literal["steps"] = "steps"
    optimizer: Literal["adam"] = "adam"
    lr: float = Field(1e-4, gt=0.0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0.0)
    steps: int = Field(100_000, ge=1)
    """Optimiser steps in all."""
    batch: int = Field(256, ge=1)
    """Sequences per optimiser step."""
    warmup: int = Field(500, ge=0)
    """Steps over which the learning rate rises linearly from 0."""
    schedule: Literal["constant", "cosine", "trapezoid"] = "constant"
    """After warm-up: flat; a half cosine to ``final_lr_ratio``; or flat, then linear over the last ``cooldown``."""
    cooldown: float = Field(0.2, ge=0.0, le=1.0)
    """Fraction of all steps in the trapezoid's linear end."""
    final_lr_ratio: float = Field(0.0, ge=0.0, le=1.0)
    clip: float | None = Field(1.0, gt=0.0)
    """Global gradient norm above which gradients are scaled down; None: never."""
    average_last: float = Field(0.0, ge=0.0, le=1.0)
    """Fraction of training at the end whose weights are averaged (uniformly) for evaluation; 0: the last weights."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Arithmetic of the forward pass; parameters and optimiser state are float32 (float64 for float64)."""

    @field_validator("betas")
    @classmethod
    def _betas(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas {betas} must lie in [0, 1)")
        return betas


class LanguageTraining(Frozen):
    """A number of text tokens in batches of a fixed number of tokens (Parcae's recipe)."""

    kind: Literal["tokens"] = "tokens"
    tokens: int = Field(1_200_000_000, ge=1)
    """Real tokens in all, padding not counted."""
    batch_tokens: int = Field(524_288, ge=1)
    """Tokens per optimiser step."""
    dtype: Literal["float32", "float64", "bfloat16"] = "bfloat16"
    """Arithmetic of the forward pass; parameters and optimiser state are float32 (float64 for float64)."""

    @property
    def steps(self) -> int:
        """Optimiser steps in all: whole batches."""
        return max(1, self.tokens // self.batch_tokens)
