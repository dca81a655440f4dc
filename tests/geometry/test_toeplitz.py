"""The closed form of the defect, its probes and budgets."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.geometry.gram import gram
from looprepro.geometry.operator import GeometryError
from looprepro.geometry.probes import blockwise, sphere
from looprepro.geometry.toeplitz import blockwise_defects, defects, mean_defects, nearest_toeplitz, sphere_defects

torch.set_num_threads(1)


def a_diagonal(width: int, seed: int = 0) -> torch.Tensor:
    rates = torch.rand(width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (0.1 + 0.8 * rates).diag()


def test_each_diagonal_becomes_its_mean():
    g = torch.tensor([[1.0, 2.0, 7.0], [3.0, 5.0, 4.0], [8.0, 9.0, 3.0]], dtype=torch.float64)
    assert nearest_toeplitz(g).tolist() == [[3.0, 3.0, 7.0], [6.0, 3.0, 3.0], [8.0, 6.0, 3.0]]
    # squares of the differences: diagonal 4 + 4 + 0, above 1 + 1, below 9 + 9; squares of g: 1+4+49+9+25+16+64+81+9
    assert defects(g).item() == pytest.approx(math.sqrt(28 / 258), rel=1e-14)


@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 7), seed=st.integers(0, 10_000))
def test_no_toeplitz_matrix_is_nearer(size, seed):
    g = torch.randn(size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    diagonals = [torch.diag(torch.ones(size - abs(k), dtype=torch.float64), k).flatten() for k in range(1 - size, size)]
    columns = torch.stack(diagonals, dim=1)
    best = columns @ torch.linalg.lstsq(columns, g.flatten()[:, None]).solution
    torch.testing.assert_close(nearest_toeplitz(g).flatten(), best[:, 0], rtol=1e-9, atol=1e-9)


def test_many_matrices_at_once_give_what_each_gives_alone():
    matrices = torch.randn(2, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    together = defects(matrices)
    assert together.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert together[i, j].item() == pytest.approx(defects(matrices[i, j]).item(), rel=1e-14)


def test_the_fast_mean_is_the_plain_defects_mean_at_every_budget(orthogonal):
    for a, largest in ((a_diagonal(12), 1.0), (0.4 * orthogonal(12), 1e-14)):
        grams = gram(a, sphere(12, 20), 24)
        fast = mean_defects(grams, [24, 1, 7])
        assert list(fast) == [24, 1, 7]
        for budget, value in fast.items():
            plain = defects(grams[:, : budget + 1, : budget + 1]).mean().item()
            assert value == pytest.approx(plain, rel=1e-12, abs=2e-15)
            assert value < largest


def test_the_defect_is_the_mean_over_the_256_probes():
    a = a_diagonal(12)
    each = [defects(gram(a, probe[None], 16)).item() for probe in sphere(12)]
    assert len(each) == 256
    assert sphere_defects(a, [16])[16] == pytest.approx(sum(each) / 256, rel=1e-12)


def test_a_budget_gives_the_same_alone_and_beside_larger_ones():
    a = a_diagonal(12)
    together = sphere_defects(a, [8, 16, 32])
    assert list(together) == [8, 16, 32]
    for budget, defect in together.items():
        assert sphere_defects(a, [budget])[budget] == pytest.approx(defect, rel=1e-12)
    assert 0.0 < together[8] < together[16] < together[32]


@pytest.mark.parametrize("groups", [1, 2, 3, 6, 12])
def test_blockwise_is_the_mean_over_probes_inside_each_group(groups):
    a = a_diagonal(12)
    each = [defects(gram(a, inside, 16)).mean().item() for inside in blockwise(12, groups)]
    assert blockwise_defects(a, groups, [16])[16] == pytest.approx(sum(each) / groups, rel=1e-10, abs=1e-15)


def test_one_group_blockwise_is_the_sphere():
    a = a_diagonal(12)
    assert blockwise_defects(a, 1, [16])[16] == pytest.approx(sphere_defects(a, [16])[16], rel=1e-13)


def test_blockwise_refuses_an_operator_that_mixes_its_groups(orthogonal):
    with pytest.raises(GeometryError, match="mixes the 2 groups"):
        blockwise_defects(orthogonal(8), 2, [4])
    with pytest.raises(GeometryError, match="do not divide"):
        blockwise_defects(orthogonal(8), 3, [4])
