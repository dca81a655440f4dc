"""Looped transformers and their injections, every number of them. Reasoners: config/reasoners.py."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from looprepro.config.base import Frozen

PARCAE_DECAY = 0.4472135954999579
"""sqrt(1/5): the decay at which Parcae starts every coordinate."""


class Injection(Frozen):
    """How the loop writes e into the state: inject(h, e) = A h + dt B e. Only this differs between compared methods."""

    method: str = "diagonal"
    """``diagonal`` (eq. 6), ``grouped_diagonal`` (Table 2's control), ``conformal`` (eq. 4, 7) or ``package.module:Class``."""
    chart: Literal["pairwise", "cayley", "householder"] | None = None
    """How the orthogonal factor is written (conformal only; default pairwise)."""
    groups: int | None = Field(None, ge=1)
    """G, the number of contiguous equal blocks that share one magnitude; divides width/2."""
    decay: Literal["free", "fixed"] = "free"
    """Magnitudes are learned, or held at ``decay_value``."""
    decay_value: float = Field(PARCAE_DECAY, gt=0.0, lt=1.0)
    """The magnitude at the start (free) or throughout (fixed)."""
    omega_init: Literal["rope", "uniform", "normal"] | None = None
    """Initial omega_i of the coupled angle theta_i = omega_i dt (conformal only; default ``rope``: 10000^(-2i/d))."""
    source: str | None = None
    """SHA-256 of the source file of a user's own operator, filled in when the sweep is expanded."""

    @model_validator(mode="after")
    def _consistent(self) -> Injection:
        own = ":" in self.method
        if not own and self.method not in ("diagonal", "grouped_diagonal", "conformal"):
            raise ValueError(
                f"unknown method '{self.method}': use diagonal, grouped_diagonal, conformal or package.module:Class"
            )
        if self.method == "diagonal" and self.groups is not None:
            raise ValueError("the diagonal has one rate per coordinate and takes no groups: use grouped_diagonal")
        if self.method in ("grouped_diagonal", "conformal") and self.groups is None:
            raise ValueError(f"{self.method} needs groups: a divisor of width/2")
        if self.method in ("diagonal", "grouped_diagonal") and (self.chart or self.omega_init):
            raise ValueError(f"{self.method} does not rotate: chart and omega_init belong to conformal")
        if self.method == "conformal":  # fill the defaults so that equal operators have equal identities
            object.__setattr__(self, "chart", self.chart or "pairwise")
            object.__setattr__(self, "omega_init", self.omega_init or "rope")
        return self


class Recurrence(Frozen):
    """How many recurrent steps a training sequence gets; drawn per sequence."""

    scheme: Literal["poisson-conditioned", "poisson-full", "poisson-truncated-full", "fixed"] = "poisson-conditioned"
    """The paper's Poisson conditioned on 1..maximum; Parcae's, clamped below at 1 (gradient through all steps, or through
    the last ``backprop_depth``); or always ``maximum``."""
    mean: float = Field(24.0, gt=0.0)
    """The Poisson parameter (not the mean after conditioning)."""
    maximum: int | None = Field(32, ge=1)
    """T_max, the top of the support; None where the scheme has no upper cut."""
    backprop_depth: int | None = Field(None, ge=1)
    """Gradient flows through the last this many steps; None: through all."""
    parcae_compat: bool = False
    """Draw with Parcae's own generator and seeds (its published test vectors) instead of counter-based streams."""

    @model_validator(mode="after")
    def _consistent(self) -> Recurrence:
        if self.scheme in ("poisson-conditioned", "fixed") and self.maximum is None:
            raise ValueError(f"{self.scheme} needs maximum (T_max)")
        if self.scheme == "poisson-truncated-full" and self.backprop_depth is None:
            raise ValueError("poisson-truncated-full needs backprop_depth")
        if self.parcae_compat and (self.scheme != "poisson-truncated-full" or self.mean != int(self.mean)):
            raise ValueError("parcae_compat imitates poisson-truncated-full with a whole mean: set the scheme, or leave it out")
        return self


class LoopedTransformer(Frozen):
    """Prelude, recurrent core, coda in Parcae's layout (arXiv 2604.12946), every number of its public code unless stated."""

    kind: Literal["looped_transformer"] = "looped_transformer"
    width: int = Field(512, ge=2)
    """d: width of the residual stream and of the recurrent state; even."""
    heads: int = Field(8, ge=1)
    prelude_layers: int = Field(2, ge=0)
    core_layers: int = Field(2, ge=1)
    coda_layers: int = Field(2, ge=0)
    mlp_width: int | None = Field(None, ge=1)
    """Hidden width of the ReLU^2 MLP; filled in as 4 width."""
    value_embeddings: bool = False
    """A vocabulary-sized value table, with its gate, in every second layer counted back from the last."""
    tied_head: bool = True
    rope_base: float = Field(50_000.0, gt=1.0)
    norm_eps: float = Field(1e-5, gt=0.0)
    qk_norm_eps: float = Field(1.1920928955078125e-07, gt=0.0)
    """float32's machine epsilon, fixed: the library default depends on its version."""
    injection: Injection = Injection()
    recurrence: Recurrence = Recurrence()

    @model_validator(mode="after")
    def _consistent(self) -> LoopedTransformer:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd: the state is made of planes, so it must be even")
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"width {self.width} over {self.heads} heads gives no even head width: RoPE needs one")
        groups = self.injection.groups
        planes = self.width // 2
        if groups is not None and planes % groups:
            divisors = ", ".join(str(g) for g in range(1, planes + 1) if planes % g == 0)
            raise ValueError(
                f"groups {groups} does not divide the {planes} planes of width {self.width}: use one of {divisors}"
            )
        if self.mlp_width is None:
            object.__setattr__(self, "mlp_width", 4 * self.width)
        return self
