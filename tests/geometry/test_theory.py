"""The paper's propositions on A^t u: P3.4, P3.5, P3.6, PA.1, PB.1, to rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.geometry.gram import gram
from looprepro.geometry.powers import Powers, powers
from looprepro.geometry.probes import blockwise, sphere
from looprepro.geometry.toeplitz import blockwise_defects, defects, sphere_defects

torch.set_num_threads(1)


def vector(*entries: float) -> torch.Tensor:
    """One probe, ``[1, d]``."""
    return torch.tensor([entries], dtype=torch.float64)


def diagonal(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64).diag()


# ---- P3.5 and C3.3: one group, A = cQ


@settings(max_examples=25, deadline=None)
@given(width=st.integers(2, 24), seed=st.integers(0, 1000), c=st.floats(0.01, 0.999))
def test_the_gram_matrix_of_cq_is_toeplitz_with_the_entries_of_q(orthogonal, width, seed, c):
    q, u = orthogonal(width, seed), sphere(width, 4, seed)
    matrices = gram(c * q, u, 12)
    for t in range(13):
        for s in range(13):
            power = torch.linalg.matrix_power(q if s >= t else q.T, abs(s - t))
            expected = (u * (u @ power.T)).sum(dim=1)  # <u, Q^{s-t} u>, |u| = 1
            torch.testing.assert_close(matrices[:, t, s], expected, rtol=0, atol=1e-12)
    assert defects(matrices).max() < 1e-12


@pytest.mark.parametrize("width", [2, 64, 257])
def test_the_defect_of_cq_vanishes_at_every_budget(orthogonal, width):
    for defect in sphere_defects(0.4472135954999579 * orthogonal(width, 1), [1, 8, 16, 32, 48]).values():
        assert defect < 1e-12


def test_cq_contracts_the_norm_by_c_and_turns_by_the_same_angle_at_every_step(orthogonal):
    q, u = orthogonal(16, 3), sphere(16, 5)
    walk = powers(0.3 * q, u, 200)  # 0.3^200 is 1e-105: its square underflows
    steps = torch.arange(201, dtype=torch.float64)
    torch.testing.assert_close(walk.log_norms, (steps * math.log(0.3))[:, None].expand(-1, 5), rtol=1e-12, atol=1e-12)
    cosine = (u * (u @ q.T)).sum(dim=1)
    torch.testing.assert_close(walk.turning(), (1 - cosine**2).sqrt().expand(200, 5), rtol=0, atol=1e-11)


def test_a_multiple_of_the_identity_never_turns():
    assert powers(0.5 * torch.eye(6, dtype=torch.float64), sphere(6, 3), 20).turning().max() < 1e-15


# ---- P3.4: a normal A turns its powers towards E, the span of the eigenvectors of largest modulus, at the rate
# max |lambda_j| outside E over max |lambda_j|


def sine_to(walk: Powers, basis: torch.Tensor) -> torch.Tensor:
    """Sine of the angle between A^t u and the span of the orthonormal columns of ``basis``: ``[T + 1, probes]``."""
    return (walk.directions - walk.directions @ basis @ basis.T).norm(dim=-1)


def test_directions_approach_the_leading_plane_at_the_stated_rate_and_go_on_turning_inside_it(orthogonal, planes):
    basis = orthogonal(6, 2)
    normal = basis @ planes([0.9, 0.6, 0.5], [0.7, 1.9, 2.6]) @ basis.T
    rate = 0.6 / 0.9
    u = sphere(6, 20)
    walk = powers(normal, u, 60)
    sine = sine_to(walk, basis[:, :2])
    tangent = sine[0] / (1 - sine[0] ** 2).sqrt()
    for t in range(61):
        assert (sine[t] <= tangent * rate**t + 1e-13).all()
    # The rate is attained: far out only the second plane is left beside E.
    torch.testing.assert_close(sine[40] / sine[39], torch.full((20,), rate, dtype=torch.float64), rtol=1e-5, atol=0)
    # No limit: inside E every step turns by theta = 0.7.
    torch.testing.assert_close(walk.turning()[-1], torch.full((20,), math.sin(0.7), dtype=torch.float64), rtol=1e-6, atol=0)


def test_one_positive_leading_eigenvalue_collapses_the_direction_of_a_diagonal():
    a, u = diagonal(0.8, 0.5, 0.2), vector(1.0, 1.0, 1.0)
    walk = powers(a, u, 40)
    leading = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64)
    # By hand: the part outside E over the whole, sqrt(0.25^t + 0.04^t) / sqrt(0.64^t + 0.25^t + 0.04^t).
    for t in (0, 1, 7, 40):
        outside = 0.25**t + 0.04**t
        assert sine_to(walk, leading)[t, 0].item() == pytest.approx(math.sqrt(outside / (0.64**t + outside)), rel=1e-9)
    assert walk.turning()[-1] < 1e-7 < 0.1 < walk.turning()[0]


# ---- P3.6: several groups


def two_groups(orthogonal, c_1: float, c_2: float) -> torch.Tensor:
    return torch.block_diag(c_1 * orthogonal(10, 1), c_2 * orthogonal(10, 2))


def test_two_rates_have_a_defect_on_the_sphere_and_none_inside_a_group(orthogonal):
    a = two_groups(orthogonal, 0.9, 0.4)
    inside, outside = blockwise_defects(a, 2, [8, 48]), sphere_defects(a, [8, 48])
    for budget in (8, 48):
        assert inside[budget] < 1e-12
        assert outside[budget] > 0.05


def test_two_groups_of_one_rate_have_no_defect_on_the_sphere_either(orthogonal):
    assert sphere_defects(two_groups(orthogonal, 0.6, 0.6), [48])[48] < 1e-12


def test_groups_stay_orthogonal_and_their_norms_part_by_the_ratio_of_rates(orthogonal):
    c_g, c_h = 0.9, 0.4
    walks = [powers(two_groups(orthogonal, c_g, c_h), 3.0**g * part, 30) for g, part in enumerate(blockwise(20, 2, 7))]
    assert (walks[0].directions @ walks[1].directions.transpose(1, 2)).abs().max() == 0.0
    log_ratio = walks[0].log_norms - walks[1].log_norms  # |x| / |y| = 1/3 at the start
    expected = torch.arange(31, dtype=torch.float64)[:, None] * math.log(c_g / c_h) - math.log(3.0)
    torch.testing.assert_close(log_ratio, expected.expand(-1, 7), rtol=0, atol=1e-12)


# ---- PA.1: orthogonal changes of basis


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), width=st.integers(2, 12))
def test_a_change_of_basis_moves_the_probe_and_nothing_else(orthogonal, seed, width):
    a = torch.randn(width, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    change, u = orthogonal(width, seed + 1), sphere(width, 5, seed)
    moved, plain = powers(change @ a @ change.T, u, 8), powers(a, u @ change, 8)  # rows: U^T u
    torch.testing.assert_close(moved.log_norms, plain.log_norms, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(moved.turning(), plain.turning(), rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(gram(change @ a @ change.T, u, 8), gram(a, u @ change, 8), rtol=1e-8, atol=1e-8)


# ---- PB.1: moduli that differ break the Toeplitz form


@pytest.mark.parametrize(
    ("r_1", "theta_1", "r_d", "theta_d"), [(0.9, 0.4, 0.5, 2.0), (0.8, 0.0, 0.3, 0.0), (1.0, 1.0, 0.95, 1.0)]
)
def test_two_moduli_give_a_lag_one_entry_below_one_that_tends_to_one(planes, r_1, theta_1, r_d, theta_d):
    # A complex vector x + iy of an eigenplane is the real plane itself, i being the quarter turn J. With u = v_1 + v_d the
    # complex entry is <A u, u> = <u_1, u> + i <u_1, J u> in real terms.
    a = planes([r_1, r_d], [theta_1, theta_d])
    u, turned = vector(1.0, 0.0, 1.0, 0.0), vector(0.0, 1.0, 0.0, 1.0)
    steps = 900
    real = powers(a, u, steps).directions[:, 0]
    imaginary = powers(a, turned, steps).directions[:, 0]
    modulus = torch.hypot((real[1:] * real[:-1]).sum(dim=1), (real[1:] * imaginary[:-1]).sum(dim=1))
    stated = abs(r_1 * np.exp(1j * theta_1) + r_d * np.exp(1j * theta_d)) / math.sqrt(2 * (r_1**2 + r_d**2))
    assert modulus[0].item() == pytest.approx(stated, rel=1e-12)
    assert stated < 1.0 - 1e-4
    assert modulus[-1].item() == pytest.approx(1.0, abs=1e-12)
    assert defects(gram(a, u, 32)).item() > 1e-4


@pytest.mark.parametrize("r", [0.5, 0.9, 0.01])
def test_the_gram_matrix_of_diag_1_r_is_the_one_worked_by_hand(r):
    t = np.arange(33)[:, None]
    s = t.T
    by_hand = (1 + r ** (t + s)) / np.sqrt((1 + r ** (2 * t)) * (1 + r ** (2 * s)))
    torch.testing.assert_close(
        gram(diagonal(1.0, r), vector(1.0, 1.0), 32)[0], torch.from_numpy(by_hand), rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("r", [0.5, 0.9, 0.01])
def test_the_defect_of_diag_1_r_is_the_one_worked_by_hand(r):
    # T = 2: one pair of diagonals is not constant, (a, c) and its mirror, each off its mean by (a - c) / 2 twice.
    a = (1 + r) / math.sqrt(2 * (1 + r**2))
    b = (1 + r**2) / math.sqrt(2 * (1 + r**4))
    c = (1 + r**3) / math.sqrt((1 + r**2) * (1 + r**4))
    by_hand = abs(a - c) / math.sqrt(3 + 2 * (a * a + b * b + c * c))
    assert defects(gram(diagonal(1.0, r), vector(1.0, 1.0), 2)).item() == pytest.approx(by_hand, rel=1e-10)
    # T = 1 holds one entry a twice: Toeplitz whatever the operator.
    assert defects(gram(diagonal(1.0, r), vector(1.0, 1.0), 1)).item() < 1e-15


def test_equal_signs_apart_diag_1_minus_1_is_orthogonal_and_has_no_defect():
    assert defects(gram(diagonal(1.0, -1.0), vector(1.0, 2.0), 20)).item() < 1e-15
