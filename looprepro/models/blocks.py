"""The transformer block of the host model: pre-norm attention with RoPE and qk-norm, and a squared-ReLU MLP.

x = x + attention(norm_1(x)); x = x + mlp(norm_2(x)). No biases. Plain tensor code with static shapes. All of it also runs a
stack of models: weights with a leading stack dimension, states ``[stack, rows, time, width]`` (models/stack.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from looprepro.models import kernels
from looprepro.models.initialisation import GeneratorOf, base_std, set_orthogonal, set_uniform
from looprepro.models.linear import Linear, per_member
from looprepro.models.rotation import rotate_pairs, unit_multiplier

GATE_INPUTS = 32
"""Leading coordinates of the normed block input that the value gate reads (all of them where the width is smaller)."""


def rope_table(positions: int, head_width: int, base: float) -> torch.Tensor:
    """(cos, sin) of position * base^(-2i / head_width): float32 ``[positions, 1, 1, head_width / 2, 2]``, built in float64."""
    frequency = base ** (-torch.arange(0, head_width, 2, dtype=torch.float64) / head_width)
    angles = torch.arange(positions, dtype=torch.float64).unsqueeze(-1) * frequency
    return unit_multiplier(angles).to(torch.float32)[:, None, None]


def document_mask(documents: torch.Tensor) -> torch.Tensor:
    """Which positions see which, bool ``[rows, 1, time, time]``: earlier ones, and itself, of the same document.

    ``documents``: int64 ``[rows, time]``.
    """
    same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
    return torch.tril(same).unsqueeze(1)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a learned weight, over the last dimension; float32 inside for narrower types."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.fused = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused and kernels.fits(x, self.weight):
            return kernels.rms_norm(x, self.weight, self.eps)
        wide = x.to(torch.promote_types(x.dtype, self.weight.dtype))
        if self.weight.dim() == 1:
            return F.rms_norm(wide, self.weight.shape, self.weight, self.eps)
        return F.rms_norm(wide, self.weight.shape[-1:], None, self.eps) * per_member(self.weight)


class Attention(nn.Module):
    """Causal attention, ``[rows, time, width]`` to the same. RoPE on interleaved pairs, then qk-norm without weights.

    q, k and v share one matrix ``[3 width, width]`` (one product instead of three; initialised as three). With
    ``value_gate`` a value vector per token, times 2 sigmoid(W x[:32]) per head, is added to v.
    """

    def __init__(self, width: int, heads: int, qk_norm_eps: float, value_gate: bool) -> None:
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.qk_norm_eps = qk_norm_eps
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width)
        self.gate = Linear(min(GATE_INPUTS, width), heads) if value_gate else None

    def forward(
        self, x: torch.Tensor, rope: torch.Tensor, value: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """``rope``: ``[time, 1, 1, head_width / 2, 2]``; ``value``: ``[rows, time, width]`` exactly where there is a gate;
        ``mask``: bool ``[rows, 1, time, time]``, which positions see which, in place of plain causality."""
        time = x.shape[-2]
        qkv = self.qkv(x).view(-1, time, 3, self.heads, self.head_width)  # from here on, rows are those of all members
        qk, v = qkv.split((2, 1), dim=2)
        v = v.squeeze(2)
        if self.gate is not None:
            assert value is not None, "a layer with a value gate needs its value vectors"
            weight = 2.0 * torch.sigmoid(self.gate(x[..., : self.gate.in_features]))
            weight = weight.view(-1, time, self.heads, 1)
            v = v + weight * value.reshape(-1, time, self.heads, self.head_width)
        turned = rotate_pairs(qk.to(rope.dtype), rope)
        qk = F.rms_norm(turned, (self.head_width,), eps=self.qk_norm_eps).to(qkv.dtype)
        q, k = qk.transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v.transpose(1, 2).to(q.dtype), mask, is_causal=mask is None)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        width = self.out.in_features
        for part, matrix in zip(("q", "k", "v"), self.qkv.weight.split(width), strict=True):
            set_orthogonal(matrix, base_std(width), generator(f"{name}.{part}"))
        nn.init.zeros_(self.out.weight)
        if self.gate is not None:
            set_uniform(self.gate.weight, self.gate.in_features**-0.5, generator(f"{name}.gate"))


class MLP(nn.Module):
    """down(relu(up(x))^2), ``[..., width]`` to the same. The factor 0.5 of Parcae's activation is in :class:`Block`."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.relu(self.up(x))
        return self.down(hidden * hidden)

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        set_orthogonal(self.up.weight, base_std(self.up.in_features), generator(f"{name}.up"))
        nn.init.zeros_(self.down.weight)


class Block(nn.Module):
    """One pre-norm layer, ``[rows, time, width]`` to the same."""

    def __init__(
        self, width: int, heads: int, mlp_width: int, norm_eps: float, qk_norm_eps: float, value_gate: bool = False
    ) -> None:
        super().__init__()
        self.norm_1 = RMSNorm(width, norm_eps)
        self.attention = Attention(width, heads, qk_norm_eps, value_gate)
        self.norm_2 = RMSNorm(width, norm_eps)
        self.mlp = MLP(width, mlp_width)
        self.fused = False

    def forward(
        self, x: torch.Tensor, rope: torch.Tensor, value: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        attention, mlp = self.attention, self.mlp
        if self.fused and value is None and mask is None and kernels.fits(x, attention.qkv.weight, x.shape[-2]):
            norms = self.norm_1.weight, self.norm_2.weight
            weights = kernels.BlockWeights(
                norms[0], attention.qkv.weight, attention.out.weight, norms[1], mlp.up.weight, mlp.down.weight
            )
            return kernels.block(x, rope, weights, attention.heads, self.norm_1.eps, attention.qk_norm_eps)
        x = x + self.attention(self.norm_1(x), rope, value, mask)
        # The 0.5 of 0.5 relu^2 is applied here, to a tensor a quarter as wide: a power of two, so not a bit changes.
        return torch.add(x, self.mlp(self.norm_2(x)), alpha=0.5)

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        nn.init.ones_(self.norm_1.weight)
        nn.init.ones_(self.norm_2.weight)
        self.attention.initialise(generator, f"{name}.attention")
        self.mlp.initialise(generator, f"{name}.mlp")
