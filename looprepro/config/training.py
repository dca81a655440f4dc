"""Optimisers and schedules: one frozen model per way of training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

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


class ParcaeCompat(Frozen):
    """Quirks of Parcae's public training code, imitated only where somebody wants to compare with it."""

    discard_first_step: bool = False
    """Compute the first update and throw it away."""
    stop_one_step_early: bool = False
    """Leave out the schedule's last step."""
    round_rates: bool = False
    """Round Muon's learning rate, weight decay and beta2 to bfloat16."""


class LanguageTraining(Frozen):
    """A number of text tokens in batches of a fixed number of tokens: Parcae's recipe, Muon and AdamW under a trapezoid."""

    kind: Literal["tokens"] = "tokens"
    tokens: int | None = Field(None, ge=1)
    """Tokens in all; or give ``tokens_per_parameter``."""
    tokens_per_parameter: float | None = Field(None, gt=0.0)
    """Tokens in all as a multiple of the model's parameters."""
    batch_tokens: int = Field(524_288, ge=1)
    """Tokens per optimiser step: batch_tokens / task.sequence rows, the few padded positions at the ends of rows included."""
    micro_batch: int = Field(8, ge=1)
    """Rows per forward and backward pass; gradients are accumulated over the batch, weighted by real tokens."""
    lr: float = Field(8e-3, gt=0.0)
    """AdamW's: embeddings, value tables, norms, the injection, C."""
    betas: tuple[float, float] = (0.8, 0.95)
    eps: float = Field(1e-10, gt=0.0)
    muon_lr: float = Field(8e-3, gt=0.0)
    """Muon's: the matrices of attention, MLP and value gates; times sqrt(max(1, rows / columns))."""
    muon_momentum: tuple[float, float] = (0.85, 0.95)
    """At the first step, and from step ``muon_momentum_steps`` on; linear in between."""
    muon_momentum_steps: int = Field(300, ge=1)
    muon_beta2: float = Field(0.95, ge=0.0, lt=1.0)
    """Of the variance reduction."""
    muon_weight_decay: float = Field(0.2, ge=0.0)
    """At the first step; falls linearly to 0 at the last."""
    muon_dtype: Literal["float32", "float64", "bfloat16"] = "bfloat16"
    """Arithmetic of the Polar-Express iterations."""
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rates rise linearly from 0."""
    cooldown: float = Field(0.5, ge=0.0, le=1.0)
    """Fraction of all steps over which the learning rates fall linearly, at the end."""
    final_lr_ratio: float = Field(0.0, ge=0.0, le=1.0)
    """The learning rates never fall below this fraction of the full ones."""
    clip: float | None = Field(1.0, gt=0.0)
    """Global gradient norm above which gradients are scaled down; None: never."""
    dtype: Literal["float32", "float64", "bfloat16"] = "bfloat16"
    """Arithmetic of the forward pass; parameters and optimiser state are float32 (float64 for float64)."""
    activation_checkpointing: Literal["none", "per-iteration"] = "none"
    """Compute the inside of each recurrent step again in the backward pass: less memory, the same numbers."""
    validate_every: int = Field(500, ge=1)
    """Steps between validations, on a fixed set of rows at the mean recurrence with seeded x_0; also after the last step."""
    validation_rows: int = Field(64, ge=1)
    max_skipped: int = Field(10, ge=0)
    """Updates in a row that may be skipped because a number was not finite; one more, and the run has diverged."""
    parcae_compat: ParcaeCompat = ParcaeCompat()

    @field_validator("betas", "muon_momentum")
    @classmethod
    def _below_one(cls, pair: tuple[float, float]) -> tuple[float, float]:
        if not all(0.0 <= value < 1.0 for value in pair):
            raise ValueError(f"{pair} must lie in [0, 1)")
        return pair

    @model_validator(mode="after")
    def _one_budget(self) -> LanguageTraining:
        if (self.tokens is None) == (self.tokens_per_parameter is None):
            raise ValueError("give either tokens or tokens_per_parameter")
        return self

    def schedule_steps(self, parameters: int) -> int:
        """Optimiser steps of the schedule for a model of that many parameters, at least 1."""
        tokens = self.tokens if self.tokens is not None else round((self.tokens_per_parameter or 0.0) * parameters)
        return max(1, tokens // self.batch_tokens)
