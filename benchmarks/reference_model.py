"""The host model written the straightforward way: eager torch, one module per idea, the whole batch to the deepest row.

From the same specification as looprepro/models, and independent of it: separate q, k and v, RoPE as real arithmetic on pairs,
nn.RMSNorm, a masked loop in which finished rows keep their state, Adam as torch chooses it. Only B e is hoisted.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from looprepro.config.cell import LoopedTransformer as Config


class Attention(nn.Module):
    """Causal, RoPE on interleaved pairs, then qk-norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.eps, self.base = config.heads, config.qk_norm_eps, config.rope_base
        self.q, self.k, self.v, self.out = (nn.Linear(config.width, config.width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, time, width = x.shape
        q, k, v = (f(x).view(rows, time, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (F.rms_norm(self.rope(z), (z.shape[-1],), eps=self.eps) for z in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(rows, time, width))

    def rope(self, x: torch.Tensor) -> torch.Tensor:
        time, head = x.shape[-2:]
        frequency = self.base ** (-torch.arange(0, head, 2, dtype=torch.float64) / head)
        angle = torch.arange(time, dtype=torch.float64)[:, None] * frequency
        cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, b * cosine + a * sine), dim=-1).flatten(-2)


class Block(nn.Module):
    """Pre-norm attention and squared-ReLU MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.RMSNorm(config.width, eps=config.norm_eps) for _ in range(2))
        self.attention = Attention(config)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.down(0.5 * F.relu(self.up(self.norm_2(x))) ** 2)


class Reference(nn.Module):
    """Conformal injection with the pairwise chart."""

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        width, self.groups = config.width, config.injection.groups or 1
        self.embedding = nn.Embedding(vocabulary, width)
        self.prelude = nn.ModuleList(Block(config) for _ in range(config.prelude_layers))
        self.core = nn.ModuleList(Block(config) for _ in range(config.core_layers))
        self.coda = nn.ModuleList(Block(config) for _ in range(config.coda_layers))
        self.norm_prelude, self.norm_final = (nn.RMSNorm(width, eps=config.norm_eps) for _ in range(2))
        self.B, self.readout = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.log_rate, self.dt_bias = (nn.Parameter(torch.zeros(self.groups)) for _ in range(2))
        self.omega = nn.Parameter(torch.zeros(width // 2))

    def forward(self, tokens: torch.Tensor, depths: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        e = self.embedding(tokens)
        for block in self.prelude:
            e = block(e)
        e = self.norm_prelude(e)
        dt = F.softplus(self.dt_bias)
        c = torch.exp(-dt * torch.exp(self.log_rate))
        planes = self.omega.numel()
        dt_plane, c_plane = (z.repeat_interleave(planes // self.groups) for z in (dt, c))
        cosine, sine = c_plane * torch.cos(self.omega * dt_plane), c_plane * torch.sin(self.omega * dt_plane)
        drive = dt_plane.repeat_interleave(2) * self.B(e)
        for t in range(int(depths.max())):
            a, b = h[..., 0::2], h[..., 1::2]
            new = torch.stack((a * cosine - b * sine, b * cosine + a * sine), dim=-1).flatten(-2) + drive
            for block in self.core:
                new = block(new)
            h = torch.where((depths > t)[:, None, None], new, h)
        h = self.readout(h)
        for block in self.coda:
            h = block(h)
        return F.linear(self.norm_final(h), self.embedding.weight)

    @torch.no_grad()
    def take(self, weights: dict[str, torch.Tensor]) -> None:
        """The weights of looprepro's model, so that both start from the same numbers."""
        names = {
            "injection.B": "B.weight",
            "injection.rates.log_rate": "log_rate",
            "injection.rates.dt_bias": "dt_bias",
            "injection.omega": "omega",
        }
        mine = dict(self.named_parameters())
        for name, value in weights.items():
            if name.endswith("attention.qkv.weight"):
                for part, matrix in zip("qkv", value.chunk(3), strict=True):
                    mine.pop(name.replace("qkv", part)).copy_(matrix)
            else:
                mine.pop(names.get(name, name.replace(".mlp.", "."))).copy_(value)
        assert not mine, f"without a value: {sorted(mine)}"


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy over all positions behind the start token."""
    loss = F.cross_entropy(logits[:, 1:].flatten(0, 1), targets[:, 1:].flatten())
    assert math.isfinite(float(loss.detach()))
    return loss
