"""The block's parts against the specification's formulas, written out."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.models.blocks import MLP, Attention, Block, RMSNorm, rope_table
from looprepro.models.rotation import rotate_pairs

torch.set_num_threads(1)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_rope_turns_pair_i_of_position_p_by_p_times_base_to_the_minus_2i_over_width():
    table = rope_table(2048, 128, 50_000.0)
    assert table.shape == (2048, 1, 1, 64, 2)
    for position, pair in [(0, 5), (1, 0), (7, 3), (2047, 63)]:
        angle = position * 50_000.0 ** (-2 * pair / 128)
        assert table[position, 0, 0, pair].tolist() == pytest.approx([math.cos(angle), math.sin(angle)], abs=1e-6)


def test_rotating_pairs_is_interleaved_and_agrees_with_the_real_arithmetic_used_when_compiling(monkeypatch):
    x, angle = draw(2, 3, 6), draw(3)
    multiplier = torch.stack((angle.cos(), angle.sin()), -1) * 0.7
    turned = rotate_pairs(x, multiplier)
    for i in range(3):
        c, s = multiplier[i]
        a, b = x[..., 2 * i], x[..., 2 * i + 1]
        assert torch.allclose(turned[..., 2 * i], a * c - b * s, atol=1e-15)
        assert torch.allclose(turned[..., 2 * i + 1], a * s + b * c, atol=1e-15)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.allclose(rotate_pairs(x, multiplier), turned, rtol=0, atol=1e-15)


def test_rms_norm_divides_by_the_root_mean_square_and_multiplies_by_its_weight():
    norm = RMSNorm(6, 1e-5).double()
    with torch.no_grad():
        norm.weight.copy_(draw(6, seed=1))
    x = 1e-3 * draw(4, 6)  # small enough that eps shows
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    assert torch.allclose(norm(x), expected, rtol=1e-12)


def test_rms_norm_of_bfloat16_is_computed_in_float32():
    norm = RMSNorm(64, 1e-5)
    x = draw(8, 64).to(torch.bfloat16)
    assert norm(x).dtype == torch.float32
    assert torch.equal(norm(x), norm(x.float()))


def reference_attention(layer: Attention, x: torch.Tensor, value: torch.Tensor | None, base: float) -> torch.Tensor:
    """One row, ``[time, width]``, by loops over heads and positions."""
    time, width = x.shape
    heads, head_width = layer.heads, layer.head_width
    w_q, w_k, w_v = layer.qkv.weight.split(width)
    out = torch.zeros_like(x)
    for head in range(heads):
        part = slice(head * head_width, (head + 1) * head_width)
        q, k, v = x @ w_q[part].T, x @ w_k[part].T, x @ w_v[part].T
        if value is not None:
            gate = 2.0 / (1.0 + torch.exp(-(x[:, :32] @ layer.gate.weight[head])))
            v = v + gate[:, None] * value[:, part]
        turned = []
        for y in (q, k):
            z = torch.empty_like(y)
            for p in range(time):
                for i in range(head_width // 2):
                    angle = p * base ** (-2 * i / head_width)
                    a, b = y[p, 2 * i], y[p, 2 * i + 1]
                    z[p, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
                    z[p, 2 * i + 1] = b * math.cos(angle) + a * math.sin(angle)
            turned.append(z / (z.square().mean(-1, keepdim=True) + layer.qk_norm_eps).sqrt())
        for p in range(time):
            scores = turned[1][: p + 1] @ turned[0][p] / math.sqrt(head_width)
            out[p, part] = torch.softmax(scores, 0) @ v[: p + 1]
    return out @ layer.out.weight.T


@pytest.mark.parametrize("value_gate", [False, True])
@pytest.mark.parametrize("width", [8, 48])
def test_attention_is_causal_with_rope_then_qk_norm_and_gated_values(width, value_gate):
    layer = Attention(width, 2, 1.19e-7, value_gate).double()
    x, value = draw(2, 5, width), draw(2, 5, width, seed=1) if value_gate else None
    table = rope_table(5, width // 2, 50_000.0).double()
    found = layer(x, table, value)
    for row in range(2):
        expected = reference_attention(layer, x[row], None if value is None else value[row], 50_000.0)
        assert torch.allclose(found[row], expected, rtol=1e-6, atol=1e-7)  # the table is float32


def test_the_mlp_of_a_block_is_half_the_squared_relu():
    block = Block(4, 2, 16, 1e-5, 1.19e-7).double()
    torch.nn.init.zeros_(block.attention.out.weight)
    x = draw(1, 2, 4)
    table = rope_table(2, 2, 50_000.0).double()
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    hidden = 0.5 * torch.relu(normed @ block.mlp.up.weight.T) ** 2
    assert torch.allclose(block(x, table), x + hidden @ block.mlp.down.weight.T, rtol=1e-12)


def test_moving_the_half_behind_the_projection_changes_no_bit():
    mlp = MLP(16, 64)
    x = draw(8, 16).float()
    inside = mlp.down(0.5 * torch.relu(mlp.up(x)).square())
    assert torch.equal(0.5 * mlp(x), inside)
