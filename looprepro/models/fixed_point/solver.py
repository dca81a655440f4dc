"""Algorithm 1: fixed-point iteration with patience, a decaying step and halting per sample (Fixed-Point Reasoners, 3.3, E).

    z <- (1 - eta) z + eta f(z);   r = |f(z) - z| / |f(z)|;   eta <- gamma eta after P iterations without a smaller r

Every quantity is kept per sample, so a sample's path depends on nobody else in its batch. The residual is that of f, not of
the damped step, which is eta times smaller and would let a sample halt merely because eta has decayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from looprepro.config.reasoners import SolverFields

TINY = 1e-8
"""Added to a token's largest |f|, so that a token at zero has a residual."""
ETA_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Iterate:
    """The iteration of each sample: all that Algorithm 1 remembers. Only ``z`` may carry gradient."""

    z: Tensor
    """``[rows, ..., width]``."""
    eta: Tensor
    """Step size, ``[rows]``."""
    patience: Tensor
    """Iterations left before the next decay, int64 ``[rows]``."""
    best: Tensor
    """Smallest residual so far, float32 ``[rows]``; infinite at the start."""
    residual: Tensor
    """Of the latest iteration, float32 ``[rows]``; infinite at the start."""
    count: Tensor
    """Iterations done, int64 ``[rows]``."""

    def detached(self) -> Iterate:
        """Without the graph."""
        return replace(self, z=self.z.detach())

    def tensors(self) -> dict[str, Tensor]:
        """By field name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def begin(z: Tensor, settings: SolverFields, eta: float = 1.0) -> Iterate:
    """The start from ``z [rows, ..., width]`` with full steps (or with a first step of ``eta``)."""
    rows, device = z.shape[0], z.device
    infinite = torch.full((rows,), float("inf"), device=device)
    return Iterate(
        z=z,
        eta=torch.full((rows,), eta, dtype=ETA_TYPES[settings.eta_dtype], device=device),
        patience=torch.full((rows,), settings.patience, dtype=torch.int64, device=device),
        best=infinite,
        residual=infinite.clone(),
        count=torch.zeros(rows, dtype=torch.int64, device=device),
    )


@torch.no_grad()
def relative_residual(z: Tensor, f: Tensor, kind: str = "token", counted: Tensor | None = None) -> Tensor:
    """|f - z| / |f| in the L-infinity norm, float32 ``[rows]``.

    ``token``: the largest over tokens of the ratio per token; ``global``: one ratio of maxima per sample. ``counted``, bool
    ``[rows, ..., tokens]``, leaves out tokens that no answer depends on. Not a number stays one, so that it never converges.
    """
    difference, size = (f - z).abs().amax(dim=-1), f.abs().amax(dim=-1)
    if counted is not None:
        difference, size = difference.masked_fill(~counted, 0.0), size.masked_fill(~counted, 0.0)
    if kind == "global":
        ratio = difference.flatten(1).amax(dim=1) / (size.flatten(1).amax(dim=1) + TINY)
    else:
        ratio = (difference / (size + TINY)).flatten(1).amax(dim=1)
    return ratio.float()


def advance(state: Iterate, f: Tensor, settings: SolverFields, counted: Tensor | None = None) -> Iterate:
    """One step of Algorithm 1, given f = f(z). The step uses eta as it was before any decay; gradient flows through z and f
    with eta constant. With ``settings.halting`` other than ``residual`` the step is z <- f; the residual is measured all the
    same."""
    residual = relative_residual(state.z, f, settings.residual, counted)
    better = residual < state.best
    best = torch.where(better, residual, state.best)
    count = state.count + 1
    if settings.halting != "residual":
        return replace(state, z=f, best=best, residual=residual, count=count)
    eta = state.eta.reshape(-1, *(1,) * (f.dim() - 1))
    z = (1.0 - eta) * state.z + eta * f
    patience = torch.where(better, settings.patience, state.patience - 1)
    decays = (patience <= 0) & ~(residual < settings.tolerance)
    factor = torch.tensor(settings.gamma, dtype=state.eta.dtype, device=state.eta.device)
    return Iterate(
        z=z.to(f.dtype),
        eta=torch.where(decays, state.eta * factor, state.eta),
        patience=torch.where(decays, settings.patience, patience),
        best=best,
        residual=residual,
        count=count,
    )


def converged(state: Iterate, settings: SolverFields) -> Tensor:
    """Bool ``[rows]``: the residual is below the tolerance."""
    return state.residual < settings.tolerance


def given_up(state: Iterate, settings: SolverFields) -> Tensor:
    """Bool ``[rows]``: the step has become too small to get anywhere."""
    return state.eta.float() < settings.min_step


def select(keep: Tensor, kept: Iterate, other: Iterate) -> Iterate:
    """Rows of ``kept`` where ``keep``, bool ``[rows]``, else of ``other``."""

    def chosen(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(keep.reshape(-1, *(1,) * (a.dim() - 1)), a, b)

    mine, theirs = kept.tensors(), other.tensors()
    return Iterate(**{name: chosen(mine[name], theirs[name]) for name in mine})


@dataclass(frozen=True, eq=False)
class Solution:
    """Where each sample stopped, and why."""

    state: Iterate
    halted: Tensor
    """Bool ``[rows]``: by the criterion; the others met the cap."""
    converged: Tensor
    """Bool ``[rows]``: with a residual below the tolerance."""


@torch.no_grad()
def solve(
    function: Map,
    z: Tensor,
    settings: SolverFields,
    cap: int,
    *,
    freeze: bool = True,
    counted: Tensor | None = None,
    stops: Callable[[Iterate], Tensor] | None = None,
    watch: Callable[[Iterate, Tensor], None] | None = None,
) -> Solution:
    """Iterate until every sample has converged, was given up, or has done ``cap`` iterations.

    With ``freeze`` a sample keeps the state in which it first halted. Rows are all computed to the end, at one shape, so that
    a row's result is the same bits whatever the others do. Without it (the released code's rule) the batch goes on until its
    largest residual is below the tolerance or its largest eta below the minimum. ``stops(state)``, bool ``[rows]``, replaces
    the criterion; ``watch(state, halted)`` sees each iteration.
    """
    state = begin(z, settings)
    halted = torch.zeros(z.shape[0], dtype=torch.bool, device=z.device)
    for _ in range(cap):
        moved = advance(state, function(state.z), settings, counted)
        state = select(halted, state, moved) if freeze else moved
        if stops is not None:
            now = stops(state)
        elif freeze:
            now = converged(state, settings) | given_up(state, settings)
        else:
            now = converged(state, settings) | given_up(state, settings).all()
        halted = halted | now if freeze else now.all().expand(halted.shape)
        if watch is not None:
            watch(state, halted)
        if bool(halted.all()):
            break
    return Solution(state, halted, converged(state, settings))
