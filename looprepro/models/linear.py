"""Linear maps and embeddings of one model, or of a stack of models: weights with a leading stack dimension.

With a stacked weight the input has the same leading dimension, and one batched product serves all members.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x W^T: ``[..., in]`` with ``weight [out, in]``, or ``[stack, ..., in]`` with ``weight [stack, out, in]``."""
    if weight.dim() == 2:
        return F.linear(x, weight)
    return torch.bmm(x.flatten(1, -2), weight.mT).unflatten(1, x.shape[1:-1])


def per_member(parameter: torch.Tensor) -> torch.Tensor:
    """A vector parameter as it meets states: ``[width]`` unchanged, ``[stack, width]`` as ``[stack, 1, 1, width]``."""
    return parameter if parameter.dim() == 1 else parameter[:, None, None]


class Linear(nn.Linear):
    """Without a bias; see :func:`linear`."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return linear(x, self.weight)


class Embedding(nn.Embedding):
    """Rows of ``weight [ids, width]`` by int64 ``ids [...]``; of ``[stack, ids, width]`` by ``[stack, ...]``."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        if self.weight.dim() == 2:
            return F.embedding(ids, self.weight)
        stack, count, _ = self.weight.shape
        first = torch.arange(stack, device=ids.device).view(stack, *(1,) * (ids.dim() - 1)) * count
        return F.embedding(ids + first, self.weight.flatten(0, 1))
