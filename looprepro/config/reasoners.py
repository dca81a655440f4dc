"""Reasoners that iterate to an answer: the Fixed-Point Reasoner (FPRM), the models it is compared with, and their training.

Defaults are the released code's where it states them; docs/assumptions.md lists what is chosen here.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from looprepro.config.base import Frozen
from looprepro.config.models import Injection

Norm = Literal["pre", "post", "peri"]
Convolution = Literal["none", "1d", "2d"]
ResidualScale = Literal["none", "fixed", "input_independent", "input_dependent", "outer_only"]

HIDDEN_MULTIPLE = 256
"""SwiGLU's hidden width is 2/3 of ``expansion`` times the width, rounded up to a multiple of this (or of a smaller width)."""
KERNELS = {"1d": 4, "2d": 3}
"""Taps of the depthwise convolutions where none are named: four positions back, or a 3 x 3 window."""


def gated_width(width: int, expansion: float) -> int:
    """Hidden width of a SwiGLU on ``width`` channels: 1536 for 512 and 4."""
    multiple = min(HIDDEN_MULTIPLE, width)
    return -(-round(expansion * width * 2.0 / 3.0) // multiple) * multiple


def mixing_width(positions: int, expansion: float) -> int:
    """Hidden width of the SwiGLU over positions that replaces attention: 512 for 97 positions, 256 for 81."""
    return -(-round(expansion * positions * 2.0 / 3.0) // HIDDEN_MULTIPLE) * HIDDEN_MULTIPLE


class LoopFields(Frozen):
    """What every reasoner's loop is made of: layers of two sub-layers, attention and SwiGLU, written into a residual stream."""

    width: int = Field(512, ge=2)
    """d."""
    heads: int = Field(8, ge=1)
    layers: int = Field(2, ge=1)
    """L, Transformer layers per loop (2 L sub-layers)."""
    expansion: float = Field(4.0, gt=0.0)
    """Of the SwiGLU: its hidden width is 2/3 of ``expansion`` times the width, rounded up."""
    norm: Norm = "pre"
    """z' = a1 z + b1 f(Norm z) (pre); Norm(a1 z + b1 f(z)) (post); a1 z + b1 Norm(f(Norm z)) (peri)."""
    residual_scale: ResidualScale = "input_independent"
    """How a1, a2 are given: all coefficients 1 (none); constants (fixed); a learned value per channel (input_independent);
    a learned function of the state (input_dependent); across iterations only, a1 = b1 = 1 and b2 = 1 - a2 (outer_only)."""
    alpha_1: float = Field(0.5, gt=0.0, lt=1.0)
    """a1 at the start: what a sub-layer keeps of the state."""
    alpha_2: float = Field(0.5, gt=0.0, lt=1.0)
    """a2 at the start: what an iteration keeps of the state."""
    convolution: Convolution = "none"
    """Depthwise convolution of the state at the start of each loop: causal over positions (1d) or over the grid (2d)."""
    kernel: int | None = Field(None, ge=1)
    """Its taps (1d) or the side of its window (2d); filled in as 4 or 3."""
    positions: Literal["rope", "none"] = "rope"
    prefix: int = Field(16, ge=0)
    """Tokens in front of the sequence that hold the puzzle's own embedding; 0 for tasks without puzzle identifiers."""
    state_std: float = Field(1.0, gt=0.0)
    """Standard deviation of z_0, a normal cut at two deviations."""
    rope_base: float = Field(10_000.0, gt=1.0)
    norm_eps: float = Field(1e-5, gt=0.0)

    @model_validator(mode="after")
    def _loop_consistent(self) -> LoopFields:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"width {self.width} over {self.heads} heads gives no even head width: RoPE needs one")
        if self.convolution == "none" and self.kernel is not None:
            raise ValueError("kernel is the convolution's: set convolution to 1d or 2d, or leave kernel out")
        if self.convolution != "none" and self.kernel is None:
            object.__setattr__(self, "kernel", KERNELS[self.convolution])
        if self.convolution == "2d" and (self.kernel or 1) % 2 == 0:
            raise ValueError(f"kernel {self.kernel} of a 2d convolution must be odd, to have a middle")
        return self


class FixedPointReasoner(LoopFields):
    """FPRM (Fixed-Point Reasoners, section 3), and with ``residual_scale: none`` the plain pre-norm and post-norm loops."""

    kind: Literal["fixed_point"] = "fixed_point"
    norm_placement: Literal["none", "input", "output"] = "none"
    """A further RMSNorm on the state: after the convolution (input) or on what an iteration returns (output; Maze)."""
    state_std: float = Field(6.0, gt=0.0)
    """Standard deviation of z_0, a normal cut at two deviations."""
    injection: Injection | None = None
    """The bridge to *Rotate the Loop*: A z + dt B x of this injection stands where a2 z + b2 x stood."""

    @model_validator(mode="after")
    def _consistent(self) -> FixedPointReasoner:
        if self.injection is not None:
            if self.residual_scale == "outer_only":
                raise ValueError(
                    "outer_only scales across iterations, where the injection now stands: choose another residual_scale"
                )
            planes, groups = self.width // 2, self.injection.groups
            if self.width % 2 or (groups is not None and planes % groups):
                raise ValueError(f"groups {groups} does not divide the {planes} planes of width {self.width}")
        return self


class RecursiveModel(LoopFields):
    """The models FPRM is compared with; one iteration is one supervision step of theirs."""

    kind: Literal["recursive"] = "recursive"
    method: Literal["trm", "hrm", "urm", "eqr", "attractor"]
    """TRM (two states, one network), HRM (two states, two networks), URM (one state, convolution in the SwiGLU), EqR (TRM
    with fixed damping, noise and random starts), Attractor (a backbone's guess, then Anderson acceleration from there)."""
    mixer: Literal["attention", "mlp"] = "attention"
    """What mixes positions: attention, or a SwiGLU over a fixed number of positions."""
    norm: Norm = "post"
    residual_scale: ResidualScale = "none"
    high_cycles: int = Field(3, ge=1)
    """H; all but the last carry no gradient."""
    low_cycles: int = Field(6, ge=1)
    """L of TRM and HRM: updates of the low state per cycle; of URM: loops per cycle."""
    damping: float = Field(1.0, gt=0.0, le=1.0)
    """EqR's eta: z <- (1 - eta) z + eta (net(z + injected) ) + noise, at every call of the network; 0.95 there."""
    noise: float = Field(0.0, ge=0.0)
    """Standard deviation of the noise added at every call of the network; 0.01 for EqR."""
    gate_kernel: int = Field(2, ge=1)
    """Taps of the depthwise convolution inside URM's SwiGLU."""
    backbone_layers: int = Field(1, ge=1)
    """Attractor: layers that make the guess."""
    memory: int = Field(5, ge=1)
    """Attractor: past residuals that Anderson acceleration combines."""
    solver_iterations: int = Field(12, ge=1)
    """Attractor: at most so many evaluations of the fixed-point block."""
    solver_tolerance: float = Field(3e-4, gt=0.0)
    """Attractor: relative residual at which it stops."""
    layer_scale: float = Field(0.5, gt=0.0)
    """Attractor: factor, learned per channel, of each sub-layer of the fixed-point block at the start."""
    block_lr: float = Field(0.5, gt=0.0)
    """Attractor: part of the learning rate that the fixed-point block takes; it is not decayed."""

    @model_validator(mode="after")
    def _consistent(self) -> RecursiveModel:
        if self.method != "eqr" and (self.damping != 1.0 or self.noise):
            raise ValueError(f"damping and noise belong to eqr, not to {self.method}")
        if self.mixer == "mlp" and self.method in ("urm", "attractor"):
            raise ValueError(f"{self.method} mixes positions by attention")
        if self.method == "attractor" and (self.residual_scale != "none" or self.convolution != "none"):
            raise ValueError("attractor has blocks of its own: residual_scale and convolution do not apply to it")
        return self


class SolverFields(Frozen):
    """How an iteration is damped and when it ends (Algorithm 1 and appendix E)."""

    halting: Literal["residual", "act", "fixed"] = "residual"
    """By a small residual, with damping (FPRM); by the learned halting head, undamped (TRM, HRM); or after a fixed number of
    iterations, undamped."""
    gamma: float = Field(0.9, gt=0.0, le=1.0)
    """Factor of eta after ``patience`` iterations without a smaller residual."""
    patience: int = Field(5, ge=1)
    """P."""
    tolerance: float = Field(0.1, gt=0.0)
    """tau: a sample has converged once its residual is below."""
    min_step: float = Field(1e-3, ge=0.0)
    """eta below which a sample is given up."""
    residual: Literal["token", "global"] = "token"
    """Relative L-infinity residual: the largest over tokens of max|f - z| / max|f| (as released), or one ratio per sample."""
    eta_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of eta and of its factor; bfloat16 as released, where gamma 0.995 to 0.998 all round to 0.99609 and 0.999 to 1."""


class ReasonerTraining(SolverFields):
    """Windows of k iterations with one loss and one optimiser step each; slots are refilled as samples halt (Algorithm 2)."""

    kind: Literal["windows"] = "windows"
    optimizer: Literal["adamw", "adam_atan2"] = "adamw"
    lr: float = Field(1e-3, gt=0.0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0.0)
    """Of AdamW; AdamATan2 has none."""
    weight_decay: float = Field(1e-3, ge=0.0)
    """Decoupled; of everything but the scaling parameters."""
    puzzle_lr: float = Field(1e-3, gt=0.0)
    """Of the puzzle embeddings, moved by the sign of their gradient."""
    puzzle_weight_decay: float = Field(1e-3, ge=0.0)
    steps: int = Field(78_125, ge=1)
    """Optimiser steps, one per window."""
    batch: int = Field(768, ge=1)
    """Slots."""
    warmup: int = Field(2000, ge=0)
    """Steps over which the learning rate rises linearly; it is constant then."""
    window: int = Field(6, ge=1)
    """k: iterations with gradient per optimiser step, and between two supervisions."""
    max_windows: int = Field(12, ge=1)
    """Windows after which a slot is refilled in any case."""
    caps: Literal["fixed", "gamma", "exponential"] = "fixed"
    """Windows of a sample: ``max_windows``, or at most as many iterations as are drawn from Gamma(4, 16.67) or Exp(72.13)."""
    exploration: float = Field(0.1, ge=0.0, le=1.0)
    """With halting act: how often, after each window, a sample that wants to stop is held to a number of windows that is drawn
    from 2 to ``max_windows``."""
    halt_loss: float = Field(0.5, ge=0.0)
    """Weight of the halting head's cross-entropy."""
    continue_loss: bool = False
    """HRM: a second target, of the value of going on, from the next step's own estimate."""
    loss: Literal["stablemax", "softmax"] = "stablemax"
    ema: float = Field(0.999, ge=0.0, lt=1.0)
    """Decay of the moving average of weights that is evaluated; 0: none."""
    clip: float | None = Field(None, gt=0.0)
    """Global gradient norm above which gradients are scaled down; None: never."""
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    """Arithmetic of the forward pass; bfloat16 is autocast over float32 parameters."""

    @model_validator(mode="after")
    def _consistent(self) -> ReasonerTraining:
        if not all(0.0 <= beta < 1.0 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must lie in [0, 1)")
        if self.continue_loss and self.halting != "act":
            raise ValueError("continue_loss trains the halting head to compare stopping with going on: set halting to act")
        return self
