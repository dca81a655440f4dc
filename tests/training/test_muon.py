"""Muon and AdamW against the numbers that a run of the public code gave, and against a slow version written here."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.config.cell import LoopedTransformer as Config
from looprepro.models.looped_transformer import LoopedTransformer
from looprepro.training.muon import POLAR_EXPRESS, MuonAdamW, Rates, effective_rate, is_muon, polar, reduce_variance

torch.set_num_threads(1)
FIRST = Rates(lr=8e-3, muon_lr=8e-3, momentum=0.85, weight_decay=0.2)


def gradients(names: dict[str, torch.Tensor], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in names.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float32).to(parameter.dtype)


def parameter(rows: int, columns: int, name: str = "core.0.mlp.up.weight") -> dict[str, torch.Tensor]:
    return {name: torch.zeros(rows, columns)}


@pytest.mark.parametrize(("rows", "columns"), [(768, 768), (3072, 768), (768, 3072), (6, 32)])
def test_the_first_update_has_norm_rate_times_root_of_the_smaller_side(rows: int, columns: int) -> None:
    """Within 1% at the shapes of the 140M model, as in the public code; from zero weights, so that decay plays no part."""
    names = parameter(rows, columns)
    gradients(names, 0)
    MuonAdamW(names).step(FIRST)
    norm = float(next(iter(names.values())).norm())
    assert norm / effective_rate(8e-3, rows, columns) == pytest.approx(math.sqrt(min(rows, columns)), rel=0.01)


def test_the_rate_grows_with_the_root_of_the_aspect_and_is_rounded_on_request() -> None:
    assert effective_rate(8e-3, 4 * 768, 768) == pytest.approx(16e-3)
    assert effective_rate(8e-3, 768, 4 * 768) == 8e-3
    moved = []
    for rounded in (False, True):
        names = parameter(8, 8)
        gradients(names, 0)
        MuonAdamW(names, dtype=torch.float32, round_rates=rounded).step(FIRST)
        moved.append(float(next(iter(names.values())).norm()))
    assert moved[1] / moved[0] == pytest.approx(0.0079956 / 8e-3, rel=1e-5)


def test_every_matrix_of_a_stack_is_orthogonalised_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    matrices = torch.randn(3, 24, 16, generator=generator) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]
    found = polar(matrices, torch.float32)
    for matrix, factor in zip(matrices, found, strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        assert torch.linalg.svdvals(factor).sub(1).abs().max() < 0.2
        assert torch.nn.functional.cosine_similarity(factor.flatten(), (left @ right).flatten(), dim=0) > 0.995
    assert not polar(torch.zeros(1, 4, 4)).any()


def test_variance_reduction_evens_the_rows_and_keeps_the_norm() -> None:
    x = torch.diag(torch.tensor([1.0, 2.0, 4.0])).unsqueeze(0)
    variance = torch.zeros(1, 3, 1)
    found = reduce_variance(x, variance, 0.95)
    assert torch.allclose(variance.flatten(), torch.tensor([1.0, 4.0, 16.0]) / 3 * 0.05)
    assert torch.allclose(found, math.sqrt(21 / 3) * torch.eye(3), rtol=1e-5)  # equal rows, norm sqrt(1 + 4 + 16)


def slow_muon(value, gradient, momentum, variance, rates, beta2=0.95):
    """The same update, one matrix at a time in float64, written out from its description."""
    rows, columns = value.shape
    momentum += (1 - rates.momentum) * (gradient - momentum)
    x = gradient + rates.momentum * (momentum - gradient)
    x = x / (1.02 * x.pow(2).sum().sqrt() + 1e-6)
    for a, b, c in POLAR_EXPRESS:
        outer = x @ x.T
        x = a * x + b * outer @ x + c * outer @ outer @ x
    norm = x.pow(2).sum().sqrt()
    mean = x.pow(2).mean(dim=1 if rows >= columns else 0)
    variance += (1 - beta2) * (mean - variance)
    scale = variance.clamp(min=1e-10).rsqrt()
    x = x * (scale[:, None] if rows >= columns else scale[None, :])
    x = x * norm / x.pow(2).sum().sqrt()
    lr = rates.muon_lr * math.sqrt(max(1, rows / columns))
    return value - lr * x - torch.where(x * value >= 0, lr * rates.weight_decay * value, 0)


@pytest.mark.parametrize(("rows", "columns"), [(12, 8), (8, 12), (8, 8)])
def test_five_updates_agree_with_a_plain_version(rows: int, columns: int) -> None:
    names = {"prelude.0.attention.out.weight": torch.randn(rows, columns, dtype=torch.float64)}
    optimizer = MuonAdamW(names, dtype=torch.float64)
    value = next(iter(names.values())).clone()
    momentum, variance = torch.zeros_like(value), torch.zeros(max(rows, columns), dtype=torch.float64)
    variance = variance[:rows] if rows >= columns else variance
    for step in range(5):
        rates = Rates(8e-3, 8e-3, 0.85 + 0.01 * step, 0.2 - 0.04 * step)
        gradients(names, step)
        value = slow_muon(value, next(iter(names.values())).grad.clone(), momentum, variance, rates)
        optimizer.step(rates)
        assert torch.allclose(next(iter(names.values())), value, rtol=1e-10, atol=1e-12)


def test_where_the_update_is_zero_the_full_decay_applies() -> None:
    names = {"coda.0.mlp.up.weight": torch.ones(4, 4)}
    names["coda.0.mlp.up.weight"].grad = torch.zeros(4, 4)
    MuonAdamW(names).step(FIRST)
    assert torch.allclose(names["coda.0.mlp.up.weight"], torch.full((4, 4), 1 - 8e-3 * 0.2))


def test_who_updates_what_in_the_140m_model() -> None:
    """24 matrices of d x d, 6 of 4d x d, 6 of d x 4d, 3 gates of h x 32 under Muon; 101,855,232 parameters under AdamW."""
    with torch.device("meta"):
        model = LoopedTransformer(Config(width=768, heads=6, value_embeddings=True), 32768, 16)
        names = dict(model.named_parameters())
        optimizer = MuonAdamW(names)
    assert optimizer.shapes == {(768, 768): 24, (3072, 768): 6, (768, 3072): 6, (6, 32): 3}
    assert sum(p.numel() for name, p in names.items() if not is_muon(name, p)) == 101_855_232


def test_adamw_divides_by_the_root_of_the_second_moment_and_an_eps_added_after_bias_correction() -> None:
    names = {"norm_final.weight": torch.zeros(1)}
    optimizer = MuonAdamW(names)
    for value in (1e-10, 3e-10):
        names["norm_final.weight"].grad = torch.full((1,), value)
        optimizer.step(FIRST)
    first = 1e-10 / (1e-10 + 1e-10)
    m = (0.8 * 0.2 * 1e-10 + 0.2 * 3e-10) / (1 - 0.8**2)
    v = (0.95 * 0.05 * 1e-20 + 0.05 * 9e-20) / (1 - 0.95**2)
    assert names["norm_final.weight"].item() == pytest.approx(-8e-3 * (first + m / (math.sqrt(v) + 1e-10)), rel=1e-4)


def test_a_restored_optimiser_goes_on_bit_by_bit() -> None:
    def fresh() -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(1)
        shapes = {"embedding.weight": (8, 4), "core.0.attention.qkv.weight": (12, 4), "injection.rates.delta": (4,)}
        return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    whole, half = fresh(), fresh()
    one, two = MuonAdamW(whole), MuonAdamW(half)
    for step in range(4):
        gradients(whole, step)
        one.step(FIRST)
        if step == 2:
            saved = {name: tensor.clone() for name, tensor in two.tensors().items()}
            half = {name: p.clone() for name, p in half.items()}
            two = MuonAdamW(half)
            two.restore(saved)
        gradients(half, step)
        two.step(FIRST)
    assert all(torch.equal(whole[name], half[name]) for name in whole)
