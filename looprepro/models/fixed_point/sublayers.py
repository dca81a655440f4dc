"""The sub-layers of a reasoner: attention, SwiGLU, and what stands in for them in some baselines. No norm weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from looprepro.models.fixed_point.start import start_linear
from looprepro.models.initialisation import GeneratorOf, set_uniform
from looprepro.models.rotation import rotate_pairs


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimension, without weight; float32 inside for narrower types."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return F.rms_norm(wide, x.shape[-1:], eps=eps)


class Attention(nn.Module):
    """Softmax attention ``[rows, positions, width]`` to the same, with or without RoPE, with or without a causal mask.

    RoPE turns interleaved pairs, as in the rest of this project, where the released code turns the two halves of a head: the
    same functions after a permutation of the rows of q and k. ``qk_norm``: RMSNorm of q and k after it (Attractor).
    """

    def __init__(self, width: int, heads: int, causal: bool, qk_norm: float | None = None) -> None:
        super().__init__()
        self.heads, self.causal, self.qk_norm = heads, causal, qk_norm
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rope: Tensor | None) -> Tensor:
        """``rope``: ``[positions, 1, 1, head_width / 2, 2]``, or None for no positions."""
        rows, positions, width = x.shape
        qkv = self.qkv(x).view(rows, positions, 3, self.heads, width // self.heads)
        qk, v = qkv.split((2, 1), dim=2)
        if rope is not None:
            qk = rotate_pairs(qk.to(rope.dtype), rope)
        if self.qk_norm is not None:
            qk = F.rms_norm(qk, qk.shape[-1:], eps=self.qk_norm)
        q, k = qk.to(qkv.dtype).transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(q, k, v.squeeze(2).transpose(1, 2), is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(rows, positions, width))

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        start_linear(self.qkv, generator, f"{name}.qkv")
        start_linear(self.out, generator, f"{name}.out")


class SwiGLU(nn.Module):
    """down(silu(gate x) * up x), ``[..., width]`` to the same; gate and up share one matrix.

    With ``gate_kernel`` a depthwise convolution over positions and a SiLU stand between the product and ``down`` (URM).
    """

    def __init__(self, width: int, hidden: int, gate_kernel: int | None = None) -> None:
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.convolution = nn.Conv1d(hidden, hidden, gate_kernel, groups=hidden) if gate_kernel else None

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        hidden = F.silu(gate) * up
        if self.convolution is not None:
            taps = self.convolution.kernel_size[0]
            hidden = F.silu(self.convolution(F.pad(hidden.mT, (taps - 1, 0))).mT)
        return self.down(hidden)

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        start_linear(self.gate_up, generator, f"{name}.gate_up")
        start_linear(self.down, generator, f"{name}.down")
        if self.convolution is not None:
            assert self.convolution.bias is not None
            bound = self.convolution.kernel_size[0] ** -0.5
            set_uniform(self.convolution.weight, bound, generator(f"{name}.convolution"))
            set_uniform(self.convolution.bias, bound, generator(f"{name}.convolution.bias"))


class PositionMixer(nn.Module):
    """A SwiGLU over the positions of each channel, in place of attention: for a fixed number of positions (TRM-MLP, EqR)."""

    def __init__(self, positions: int, hidden: int) -> None:
        super().__init__()
        self.glu = SwiGLU(positions, hidden)

    def forward(self, x: Tensor, rope: Tensor | None) -> Tensor:
        return self.glu(x.mT).mT

    def initialise(self, generator: GeneratorOf, name: str) -> None:
        self.glu.initialise(generator, name)
