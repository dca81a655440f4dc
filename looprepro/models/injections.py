"""The operator that writes e into the state, inject(h, e) = A h + dt B e: all that differs between compared methods.

An injection is a pure function of its parameters, in three stages: ``operator()`` once per forward pass, ``drive`` once per
forward pass, ``step`` once per recurrent step. Equations of Rotate the Loop: (4) and (7) conformal, (6) diagonal.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from looprepro.config.cell import Injection as InjectionConfig
from looprepro.files.errors import ConfigError
from looprepro.models import kernels
from looprepro.models.charts import Cayley, Householder, Rates, initial_omega, spread
from looprepro.models.initialisation import GeneratorOf
from looprepro.models.rotation import rotate_pairs, unit_multiplier


class Injection(nn.Module):
    """Base of all injections, and of a user's own. A subclass gives ``operator`` and ``step``, and ``initialise`` where it has
    parameters besides B.

    ``operator`` returns a NamedTuple of tensors with at least ``dt``, broadcastable to ``[width]``. Everything must be made of
    torch operations on parameters and buffers, so that torch.func.vmap can stack runs.
    """

    def __init__(self, config: InjectionConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.width = width
        self.fused = False
        """Use the kernels of models/kernels.py where there is one (kernels.use)."""
        self.B = nn.Parameter(torch.eye(width))

    def initialise(self, generator: GeneratorOf) -> None:
        """Set every parameter: from constants, or from ``generator(name)`` (seeded by the cell's seed and the name)."""
        nn.init.eye_(self.B)
        others = [name for name, _ in self.named_parameters() if name != "B"]
        if others and type(self).initialise is Injection.initialise:
            raise ConfigError(
                f"{type(self).__name__} has parameters of its own ({', '.join(others)}) but no initialise(generator)",
                "Define it, call super().initialise(generator), and draw from generator(name), so that seeds mean something",
            )

    def operator(self, dtype: torch.dtype | None = None) -> Any:
        """What the steps of one forward pass share, in the parameters' type or computed in ``dtype``."""
        raise NotImplementedError(f"{type(self).__name__} must define operator()")

    def drive(self, e: torch.Tensor, op: Any) -> torch.Tensor:
        """dt (B e), ``[rows, time, width]``: does not depend on the step, so it is computed once."""
        return F.linear(e, self.B) * op.dt

    def step(self, h: torch.Tensor, op: Any, drive: torch.Tensor) -> torch.Tensor:
        """A h + drive, ``[rows, time, width]``."""
        raise NotImplementedError(f"{type(self).__name__} must define step()")

    @torch.no_grad()
    def matrix(self) -> torch.Tensor:
        """A as float64 ``[width, width]`` on the CPU, assembled in float64 from the parameters.

        Here column by column through ``step``, which suits any subclass; the built-in methods assemble it directly.
        """
        exact = copy.deepcopy(self).to(device="cpu", dtype=torch.float64)
        basis = torch.eye(self.width, dtype=torch.float64)
        return exact.step(basis.unsqueeze(1), exact.operator(), torch.zeros_like(basis).unsqueeze(1)).squeeze(1).T


class DiagonalOperator(NamedTuple):
    """Per coordinate, ``[width]`` each."""

    decay: torch.Tensor
    dt: torch.Tensor


class Diagonal(Injection):
    """A = diag(exp(-dt exp(a))) with one rate per coordinate (eq. 6), or one per contiguous block (``groups`` given)."""

    def __init__(self, config: InjectionConfig, width: int) -> None:
        super().__init__(config, width)
        self.rates = Rates(config.groups or width, config.decay == "fixed", config.decay_value)

    def initialise(self, generator: GeneratorOf) -> None:
        super().initialise(generator)
        self.rates.initialise()

    def operator(self, dtype: torch.dtype | None = None) -> DiagonalOperator:
        scale = self.rates(dtype)
        return DiagonalOperator(spread(scale.c, self.width), spread(scale.dt, self.width))

    def step(self, h: torch.Tensor, op: DiagonalOperator, drive: torch.Tensor) -> torch.Tensor:
        if self.fused and kernels.fits(h, op.decay):
            return kernels.diagonal_step(h, op.decay, drive)  # also for a stack: decay [stack, width]
        return torch.addcmul(drive, h, op.decay)

    @torch.no_grad()
    def matrix(self) -> torch.Tensor:
        return torch.diag(self.operator(torch.float64).decay).cpu()


class PlanarOperator(NamedTuple):
    """``multiplier``: c (cos theta, sin theta) per plane, ``[width / 2, 2]``; ``dt``: ``[width]``."""

    multiplier: torch.Tensor
    dt: torch.Tensor


class PairwiseConformal(Injection):
    """Plane i = coordinates (2i, 2i+1) in group g: c_g R(omega_i dt_g), the coupled angle of eq. (7)."""

    def __init__(self, config: InjectionConfig, width: int) -> None:
        super().__init__(config, width)
        assert config.groups is not None, "config.Injection guarantees it"
        self.rates = Rates(config.groups, config.decay == "fixed", config.decay_value)
        self.omega = nn.Parameter(torch.zeros(width // 2))

    def initialise(self, generator: GeneratorOf) -> None:
        super().initialise(generator)
        self.rates.initialise()
        with torch.no_grad():
            self.omega.copy_(initial_omega(self.config, self.width, generator))

    def operator(self, dtype: torch.dtype | None = None) -> PlanarOperator:
        scale = self.rates(dtype)
        planes = self.width // 2
        angles = self.omega.to(scale.dt.dtype) * spread(scale.dt, planes)
        multiplier = spread(scale.c, planes).unsqueeze(-1) * unit_multiplier(angles)
        return PlanarOperator(multiplier, spread(scale.dt, self.width))

    def step(self, h: torch.Tensor, op: PlanarOperator, drive: torch.Tensor) -> torch.Tensor:
        if self.fused and kernels.fits(h, op.multiplier):
            return kernels.planar_step(h, op.multiplier, drive)  # also for a stack: multiplier [stack, planes, 2]
        return rotate_pairs(h, op.multiplier) + drive

    @torch.no_grad()
    def matrix(self) -> torch.Tensor:
        cosine, sine = self.operator(torch.float64).multiplier.cpu().unbind(-1)
        even = torch.arange(0, self.width, 2)
        matrix = torch.zeros(self.width, self.width, dtype=torch.float64)
        matrix[even, even], matrix[even, even + 1] = cosine, -sine
        matrix[even + 1, even], matrix[even + 1, even + 1] = sine, cosine
        return matrix


class BlockOperator(NamedTuple):
    """``blocks``: c_g Q_g, ``[groups, width / groups, width / groups]``; ``dt``: ``[width]``."""

    blocks: torch.Tensor
    dt: torch.Tensor


class DenseConformal(Injection):
    """c_g Q_g per group with Q_g from a chart of all rotations (``cayley``) or all orthogonal matrices (``householder``)."""

    def __init__(self, config: InjectionConfig, width: int) -> None:
        super().__init__(config, width)
        assert config.groups is not None, "config.Injection guarantees it"
        self.groups = config.groups
        self.rates = Rates(config.groups, config.decay == "fixed", config.decay_value)
        chart = Cayley if config.chart == "cayley" else Householder
        self.chart: Cayley | Householder = chart(config.groups, width // config.groups)

    def initialise(self, generator: GeneratorOf) -> None:
        super().initialise(generator)
        self.rates.initialise()
        omega = initial_omega(self.config, self.width, generator).to(torch.float64)
        self.chart.start_from((omega * self.rates.initial_dt).view(self.groups, -1))

    def operator(self, dtype: torch.dtype | None = None) -> BlockOperator:
        scale = self.rates(dtype)
        blocks = scale.c[:, None, None] * self.chart(dtype)
        return BlockOperator(blocks, spread(scale.dt, self.width))

    def step(self, h: torch.Tensor, op: BlockOperator, drive: torch.Tensor) -> torch.Tensor:
        if self.groups == 1:
            return F.linear(h, op.blocks.squeeze(0)) + drive
        # [groups, rows * time, block]: one batched product over all groups.
        grouped = h.reshape(-1, self.groups, self.width // self.groups).transpose(0, 1)
        return torch.bmm(grouped, op.blocks.mT).transpose(0, 1).reshape(h.shape) + drive

    @torch.no_grad()
    def matrix(self) -> torch.Tensor:
        return torch.block_diag(*self.operator(torch.float64).blocks.cpu())


def make_injection(config: InjectionConfig, width: int) -> Injection:
    """The module that ``config`` names, on ``width`` coordinates; :class:`ConfigError` where it cannot be made."""
    if width % 2:
        raise ConfigError(f"width {width} is odd: the state is made of planes", "Use an even width")
    if config.groups is not None and (width // 2) % config.groups:
        raise ConfigError(f"groups {config.groups} does not divide the {width // 2} planes of width {width}", "Use a divisor")
    if ":" in config.method:
        return _own_class(config.method)(config, width)
    if config.method in ("diagonal", "grouped_diagonal"):
        return Diagonal(config, width)
    return PairwiseConformal(config, width) if config.chart == "pairwise" else DenseConformal(config, width)


def _own_class(name: str) -> type[Injection]:
    module_name, _, class_name = name.partition(":")
    # A worker finds what lies in the working folder by itself, a console script does not. Behind everything else, so that the
    # snapshot of a submission goes first.
    if (here := os.getcwd()) not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"injection '{name}' cannot be loaded: {error}",
            "Run from the folder that holds it, or install it; write package.module:Class",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Injection)):
        raise ConfigError(
            f"injection '{name}' is not a subclass of looprepro.models.injections.Injection", "Derive it from that class"
        )
    return found
