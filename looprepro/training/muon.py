"""Muon for the matrices inside layers and AdamW for everything else, with the arithmetic of Parcae's public optimiser.

Muon here = momentum, five Polar-Express iterations in place of the singular value decomposition, NorMuon's variance reduction,
cautious weight decay. ``torch.optim.Muon`` cannot be configured to it: one triple of coefficients serves all its iterations,
it divides by the plain norm, and it knows neither variance reduction nor cautious decay (docs/language.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
"""(a, b, c) of each iteration X <- a X + (b A + c A^2) X with A = X X^T."""
NORM_MARGIN = 1.02
NORM_FLOOR = 1e-6
VARIANCE_FLOOR = 1e-10
STACKED = ("qkv.weight",)
"""Parameters that hold three matrices of the published model, one above the other: q, k, v. Each is orthogonalised alone."""


def polar(matrices: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Nearly the orthogonal factor of each of ``matrices [count, rows, columns]`` (singular values within 2% or so of 1).

    Computed in ``dtype``. A matrix of zeros stays zero.
    """
    x = matrices.to(dtype)
    x = x / (NORM_MARGIN * torch.linalg.matrix_norm(x, keepdim=True) + NORM_FLOOR)
    tall = x.shape[-2] > x.shape[-1]
    for a, b, c in POLAR_EXPRESS:
        gram = x.mT @ x if tall else x @ x.mT
        polynomial = b * gram + c * (gram @ gram)
        x = a * x + (x @ polynomial if tall else polynomial @ x)
    return x


def reduce_variance(x: Tensor, variance: Tensor, beta2: float) -> Tensor:
    """NorMuon: even out the rows (columns, where there are fewer rows than columns) by a running mean of their squares.

    ``variance`` (float32, :func:`variance_shape`) is updated in place, without bias correction; the norm of each matrix stays.
    """
    wide = x.to(variance.dtype)
    along = -1 if variance.shape[-1] == 1 else -2
    squares = wide.square().mean(dim=along, keepdim=True)
    variance.lerp_(squares, 1.0 - beta2)
    scale = variance.clamp(min=VARIANCE_FLOOR).rsqrt()
    before = squares.sum(dim=(-2, -1), keepdim=True).sqrt()
    after = (squares * scale.square()).sum(dim=(-2, -1), keepdim=True).sqrt()
    return wide * (scale * (before / after.clamp(min=VARIANCE_FLOOR)))


def variance_shape(rows: int, columns: int) -> tuple[int, int]:
    """One running mean per row, or per column where there are fewer rows than columns."""
    return (rows, 1) if rows >= columns else (1, columns)


def is_muon(name: str, parameter: Tensor) -> bool:
    """Whether Muon updates ``parameter``: the matrices of attention, MLP and value gates.

    AdamW has the rest: embeddings, value tables, an untied head, norms, the whole injection (rates, phases, B) and C.
    """
    return parameter.ndim == 2 and name.partition(".")[0] in ("prelude", "core", "coda") and "norm" not in name


def effective_rate(lr: float, rows: int, columns: int) -> float:
    """lr sqrt(max(1, rows / columns)): twice the rate for an MLP's way up at four times the width."""
    return lr * max(1.0, rows / columns) ** 0.5


@dataclass(frozen=True)
class Rates:
    """What the schedules say about one update."""

    lr: float
    """AdamW's."""
    muon_lr: float
    momentum: float
    weight_decay: float
    """Muon's; AdamW has none."""


@dataclass
class _Matrix:
    """One matrix under Muon: views into its parameter, and its state."""

    name: str
    part: slice
    momentum: Tensor
    variance: Tensor


@dataclass
class MuonAdamW:
    """Both optimisers over ``parameters`` by name. A step needs every gradient; state is float32 (float64 for float64)."""

    parameters: Mapping[str, Tensor]
    betas: tuple[float, float] = (0.8, 0.95)
    eps: float = 1e-10
    beta2: float = 0.95
    """Of Muon's variance reduction."""
    dtype: torch.dtype = torch.bfloat16
    """Of the Polar-Express iterations."""
    round_rates: bool = False
    """Round Muon's lr, weight decay and beta2 to bfloat16, as the public code does by the type it computes in."""
    _groups: dict[tuple[int, int], list[_Matrix]] = field(default_factory=lambda: defaultdict(list), repr=False)

    def __post_init__(self) -> None:
        rest = [p for name, p in self.parameters.items() if not is_muon(name, p)]
        self.adamw = torch.optim.AdamW(
            [{"params": rest}], lr=0.0, betas=self.betas, eps=self.eps, weight_decay=0.0, foreach=True
        )
        for parameter in rest:  # what AdamW would make at its first update; here so that the state has one shape throughout
            moments = {key: torch.zeros_like(parameter, requires_grad=False) for key in ("exp_avg", "exp_avg_sq")}
            self.adamw.state[parameter] = {"step": torch.zeros((), dtype=torch.float32, device="cpu"), **moments}
        for name, parameter in self.parameters.items():
            if not is_muon(name, parameter):
                continue
            parts = 3 if name.endswith(STACKED) else 1
            rows, columns = parameter.shape[0] // parts, parameter.shape[1]
            for index in range(parts):
                part = slice(index * rows, (index + 1) * rows)
                momentum = torch.zeros_like(parameter[part])
                variance = parameter.new_zeros(variance_shape(rows, columns))
                self._groups[rows, columns].append(_Matrix(name, part, momentum, variance))

    @property
    def shapes(self) -> dict[tuple[int, int], int]:
        """Matrices under Muon by shape."""
        return {shape: len(group) for shape, group in self._groups.items()}

    @torch.no_grad()
    def step(self, rates: Rates) -> None:
        """One update of every parameter from its ``grad``."""
        for settings in self.adamw.param_groups:
            settings["lr"] = rates.lr
        self.adamw.step()
        for (rows, columns), group in self._groups.items():
            self._update(rows, columns, group, rates)

    def _update(self, rows: int, columns: int, group: Sequence[_Matrix], rates: Rates) -> None:
        gradients = torch.stack([self._gradient(matrix) for matrix in group])
        momentum = torch.stack([matrix.momentum for matrix in group]).lerp_(gradients, 1.0 - rates.momentum)
        variance = torch.stack([matrix.variance for matrix in group])
        direction = gradients.lerp_(momentum, rates.momentum)  # Nesterov
        update = reduce_variance(polar(direction, self.dtype), variance, self._rounded(self.beta2))
        values = torch.stack([self.parameters[matrix.name][matrix.part] for matrix in group])
        lr = self._rounded(effective_rate(rates.muon_lr, rows, columns))
        decay = lr * self._rounded(rates.weight_decay)
        shrink = values * (update * values >= 0)  # cautious: only where the update shrinks the value too, or is zero
        values -= lr * update + decay * shrink
        for index, matrix in enumerate(group):
            self.parameters[matrix.name][matrix.part].copy_(values[index])
            matrix.momentum.copy_(momentum[index])
            matrix.variance.copy_(variance[index])

    def _gradient(self, matrix: _Matrix) -> Tensor:
        gradient = self.parameters[matrix.name].grad
        assert gradient is not None, f"{matrix.name} has no gradient"
        return gradient[matrix.part]

    def _rounded(self, value: float) -> float:
        return float(torch.tensor(value, dtype=torch.bfloat16)) if self.round_rates else value

    def tensors(self) -> dict[str, Tensor]:
        """The state by name, for a checkpoint."""
        found = {}
        for name, parameter in self.parameters.items():
            for key, value in self.adamw.state.get(parameter, {}).items():
                found[f"{key}.{name}"] = value
        for matrix in self._matrices():
            found[f"momentum.{matrix.part.start}.{matrix.name}"] = matrix.momentum
            found[f"variance.{matrix.part.start}.{matrix.name}"] = matrix.variance
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what :meth:`tensors` gave. ``KeyError`` where anything is missing."""
        for name, own in self.tensors().items():
            own.copy_(tensors[name])

    def _matrices(self) -> Iterable[_Matrix]:
        return (matrix for group in self._groups.values() for matrix in group)
