"""The propositions of Rotate the Loop, section 3 and appendices A and B, on our operators, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from looprepro.config.cell import Injection
from looprepro.models.injections import make_injection
from looprepro.randomness import parameter_generator

torch.set_num_threads(1)
WIDTH = 8
seeds = st.integers(0, 2**31)
charts = st.sampled_from(["pairwise", "cayley", "householder"])
property_test = settings(max_examples=15, deadline=None)


def random(seed: int, name: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=parameter_generator(seed, name), dtype=torch.float64)


def conformal(seed: int, chart: str, groups: int) -> torch.nn.Module:
    """A conformal injection in float64 with every parameter random, far from its start."""
    injection = make_injection(Injection(method="conformal", chart=chart, groups=groups), WIDTH).double()
    with torch.no_grad():
        for name, parameter in injection.named_parameters():
            parameter.copy_(random(seed, name, *parameter.shape) * (0.5 if "rates" in name else 1.0))
    return injection


def orthogonal(seed: int, width: int = WIDTH) -> torch.Tensor:
    return torch.linalg.qr(random(seed, "orthogonal", width, width))[0]


def orbit(matrix: torch.Tensor, u: torch.Tensor, steps: int) -> torch.Tensor:
    """u/|u|, Au/|Au|, ... ``[steps + 1, width]``, renormalised at every step."""
    states = [u / u.norm()]
    for _ in range(steps):
        state = matrix @ states[-1]
        states.append(state / state.norm())
    return torch.stack(states)


def gram(matrix: torch.Tensor, u: torch.Tensor, steps: int = 12) -> torch.Tensor:
    states = orbit(matrix, u, steps)
    return states @ states.mH


def is_toeplitz(matrix: torch.Tensor, tolerance: float = 1e-11) -> bool:
    return bool((matrix[1:, 1:] - matrix[:-1, :-1]).abs().max() < tolerance)


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-11) -> bool:
    a, b = a.detach(), b.detach()
    return bool((a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max())))


@property_test
@given(seeds, charts)
def test_p3_2_one_group_scales_every_inner_product_by_c_squared(seed, chart):
    injection = conformal(seed, chart, 1)
    matrix, c = injection.matrix(), injection.rates().c.detach()
    x, y = random(seed, "x", WIDTH), random(seed, "y", WIDTH)
    assert close((matrix @ x) @ (matrix @ y), c[0] ** 2 * (x @ y))
    assert close(matrix.T @ matrix, c[0] ** 2 * torch.eye(WIDTH, dtype=torch.float64))


@property_test
@given(seeds, st.floats(1.01, 3.0))
def test_p3_2_conversely_a_map_that_is_not_cq_changes_some_inner_product_by_another_factor(seed, stretch):
    # The orthogonal factor times a stretch of one direction: one pair keeps its inner product, another does not.
    matrix = orthogonal(seed) @ torch.diag(torch.tensor([stretch] + [1.0] * (WIDTH - 1), dtype=torch.float64))
    first, second = torch.eye(WIDTH, dtype=torch.float64)[:2]
    factors = [(matrix @ x).square().sum() / x.square().sum() for x in (first, second)]
    assert float(factors[0] / factors[1]) == pytest.approx(stretch**2, rel=1e-10)
    x, y = first + second, first - second  # orthogonal before, not after
    assert abs(float((matrix @ x) @ (matrix @ y))) == pytest.approx(stretch**2 - 1.0, rel=1e-8)


@property_test
@given(seeds, charts)
def test_c3_3_angles_are_kept_distances_scaled_and_directions_rotated_not_kept(seed, chart):
    injection = conformal(seed, chart, 1)
    matrix, c = injection.matrix(), float(injection.rates().c.detach())
    x, y = random(seed, "x", WIDTH), random(seed, "y", WIDTH)
    cosine = torch.nn.functional.cosine_similarity
    assert close(cosine(matrix @ x, matrix @ y, dim=0), cosine(x, y, dim=0))
    assert close((matrix @ x - matrix @ y).norm(), c * (x - y).norm())
    q = matrix / c
    assert close((matrix @ x) / (matrix @ x).norm(), q @ (x / x.norm()))
    assert not close((matrix @ x) / (matrix @ x).norm(), x / x.norm(), 1e-6)


@property_test
@given(seeds, charts)
def test_c3_3_a_weightless_rms_norm_removes_c_and_commutes_with_q(seed, chart):
    injection = conformal(seed, chart, 1)
    matrix, c = injection.matrix(), float(injection.rates().c.detach())
    x = random(seed, "x", WIDTH)

    def norm(v: torch.Tensor) -> torch.Tensor:
        return v / v.square().mean().sqrt()

    assert close(norm(matrix @ x), (matrix / c) @ norm(x))


def normal_matrix(seed: int, blocks: list[tuple[float, float | None]]) -> tuple[torch.Tensor, torch.Tensor]:
    """(A, U): U blockdiag U^T with a 1x1 block r per (r, None) and a 2x2 block r R(theta) per (r, theta)."""
    parts = []
    for r, theta in blocks:
        if theta is None:
            parts.append(torch.tensor([[r]], dtype=torch.float64))
        else:
            c, s = math.cos(theta), math.sin(theta)
            parts.append(r * torch.tensor([[c, -s], [s, c]], dtype=torch.float64))
    inner = torch.block_diag(*parts)
    u = orthogonal(seed, inner.shape[0])
    return u @ inner @ u.T, u


@property_test
@given(seeds, st.floats(0.3, 0.95), st.floats(0.1, 3.0))
def test_p3_4_the_angle_to_the_leading_eigenspace_vanishes_at_the_ratio_of_moduli(seed, beta, theta):
    # Leading modulus 0.9 on a plane that turns; everything else has modulus 0.9 beta, so tan(angle) falls by beta exactly.
    matrix, basis = normal_matrix(seed, [(0.9, theta), (0.9 * beta, None), (0.9 * beta, 1.0), (-0.9 * beta, None)])
    leading = basis[:, :2]
    states = orbit(matrix, random(seed, "u", 6), 30)
    inside = (states @ leading).norm(dim=1)
    outside = (states - states @ leading @ leading.T).norm(dim=1)
    tangent = outside / inside
    expected = tangent[0] * beta ** torch.arange(31, dtype=torch.float64)
    assert close(tangent, expected, 1e-9)


@property_test
@given(seeds, st.lists(st.floats(0.1, 0.85), min_size=2, max_size=4), st.floats(0.2, 3.0))
def test_p3_4_a_slower_second_modulus_bounds_the_sine_and_a_complex_pair_goes_on_turning(seed, moduli, theta):
    matrix, basis = normal_matrix(seed, [(0.9, theta), *((r, None) for r in moduli)])
    leading = basis[:, :2]
    u = random(seed, "u", 2 + len(moduli))
    inside, outside = (u @ leading).norm(), (u - leading @ (leading.T @ u)).norm()
    states = orbit(matrix, u, 60)
    sine = (states - states @ leading @ leading.T).norm(dim=1)
    bound = outside / inside * (max(moduli) / 0.9) ** torch.arange(61, dtype=torch.float64)
    assert bool((sine <= bound + 1e-12).all())
    # Inside E the direction does not converge: consecutive directions keep the angle theta of the pair.
    lag_one = (leading.T @ u) / (leading.T @ u).norm()
    turned = orbit(matrix, leading @ lag_one, 20)
    assert close((turned[1:] * turned[:-1]).sum(1), torch.full((20,), math.cos(theta), dtype=torch.float64), 1e-9)


@property_test
@given(seeds)
def test_p3_4_the_diagonal_injection_turns_every_write_towards_its_slowest_coordinate(seed):
    injection = make_injection(Injection(method="diagonal"), WIDTH).double()
    with torch.no_grad():
        decay = torch.linspace(0.2, 0.9, WIDTH, dtype=torch.float64)
        injection.rates.log_rate.copy_(torch.log(-torch.log(decay) / injection.rates().dt))
    u = random(seed, "u", WIDTH)
    u[-1] = u[-1].sign() * (u[-1].abs() + 0.1)
    states = orbit(injection.matrix(), u, 400)
    assert float(states[-1, -1].abs()) == pytest.approx(1.0, abs=1e-12)


@property_test
@given(seeds, charts)
def test_p3_4_under_cq_consecutive_directions_keep_one_angle_and_ci_is_the_trivial_case(seed, chart):
    states = orbit(conformal(seed, chart, 1).matrix(), random(seed, "u", WIDTH), 20)
    cosines = (states[1:] * states[:-1]).sum(1)
    assert close(cosines, cosines[:1].expand(20))
    trivial = make_injection(Injection(method="diagonal", decay="fixed"), WIDTH).double()
    still = orbit(trivial.matrix(), random(seed, "u", WIDTH), 20)
    assert close(still, still[:1].expand(21, WIDTH))


@property_test
@given(seeds, charts)
def test_p3_5_the_gram_matrix_is_toeplitz_with_entries_from_powers_of_q(seed, chart):
    injection = conformal(seed, chart, 1)
    matrix, u = injection.matrix(), random(seed, "u", WIDTH)
    q = matrix / float(injection.rates().c.detach())
    measured = gram(matrix, u)
    assert is_toeplitz(measured)
    for lag in range(13):
        entry = u @ torch.linalg.matrix_power(q, lag) @ u / (u @ u)
        assert float(measured[0, lag]) == pytest.approx(float(entry), abs=1e-11)
        assert float(measured[lag, 0]) == pytest.approx(float(entry), abs=1e-11)


@property_test
@given(seeds, charts, st.sampled_from([2, 4]))
def test_p3_6_each_group_is_conformal_and_distinct_groups_stay_orthogonal(seed, chart, groups):
    injection = conformal(seed, chart, groups)
    matrix, c = injection.matrix(), injection.rates().c.detach()
    block = WIDTH // groups
    first, last = torch.zeros(WIDTH, dtype=torch.float64), torch.zeros(WIDTH, dtype=torch.float64)
    first[:block], last[-block:] = random(seed, "first", block), random(seed, "last", block)
    assert is_toeplitz(gram(matrix, first))
    assert is_toeplitz(gram(matrix, last))
    x, y = first.clone(), last.clone()
    for step in range(1, 8):
        x, y = matrix @ x, matrix @ y
        assert float(x[block:].abs().max()) == 0.0  # never leaves its contiguous block
        assert float(x @ y) == 0.0
        expected = (c[0] / c[-1]) ** step * first.norm() / last.norm()
        assert float(x.norm() / y.norm()) == pytest.approx(float(expected), rel=1e-10)


@property_test
@given(seeds)
def test_p3_6_a_write_across_two_groups_with_different_rates_is_not_toeplitz(seed):
    injection = conformal(seed, "pairwise", 2)
    with torch.no_grad():
        injection.rates.log_rate.copy_(torch.tensor([-1.0, 0.5]))
        injection.rates.dt_bias.fill_(0.2)
    assert not is_toeplitz(gram(injection.matrix(), torch.ones(WIDTH, dtype=torch.float64)), 1e-3)


@property_test
@given(seeds, charts, st.sampled_from([1, 2]))
def test_pa_1_an_orthogonal_change_of_basis_changes_only_which_write_is_seen(seed, chart, groups):
    matrix, basis, u = conformal(seed, chart, groups).matrix(), orthogonal(seed), random(seed, "u", WIDTH)
    changed = basis @ matrix @ basis.T
    assert close(gram(changed, u), gram(matrix, basis.T @ u), 1e-10)
    assert close(torch.linalg.svdvals(changed), torch.linalg.svdvals(matrix))


@property_test
@given(seeds, st.sampled_from([1, 2, 4]))
def test_eq_4_the_eigenvalues_of_a_plane_are_c_times_e_to_plus_minus_i_theta(seed, groups):
    injection = conformal(seed, "pairwise", groups)
    delta, a, omega = (p.detach() for p in (injection.rates.dt_bias, injection.rates.log_rate, injection.omega))
    matrix = injection.matrix()
    for plane in range(WIDTH // 2):
        group = plane * groups // (WIDTH // 2)
        dt = math.log1p(math.exp(float(delta[group])))
        expected = torch.exp(dt * torch.complex(-torch.exp(a[group]), omega[plane]))  # the complex discretisation
        block = matrix[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2]
        found = torch.linalg.eigvals(block)
        wanted = torch.stack([expected, expected.conj()])
        assert bool(((found[:, None] - wanted[None]).abs().amin(dim=0) < 1e-12).all())
    outside = matrix.clone()
    for plane in range(WIDTH // 2):
        outside[2 * plane : 2 * plane + 2, 2 * plane : 2 * plane + 2] = 0.0
    assert float(outside.abs().max()) == 0.0


@property_test
@given(seeds, st.floats(0.2, 0.95), st.floats(0.0, 3.1), st.floats(0.0, 3.1))
def test_pb_1_unequal_moduli_of_a_normal_matrix_show_in_the_lag_one_diagonal(seed, ratio, theta_1, theta_d):
    complex_random = torch.complex(random(seed, "re", 3, 3), random(seed, "im", 3, 3))
    basis = torch.linalg.qr(complex_random)[0]
    r_1, r_d = 0.9, 0.9 * ratio
    radii = torch.tensor([r_1, 0.9 * (1.0 + ratio) / 2.0, r_d], dtype=torch.float64)
    eigenvalues = torch.polar(radii, torch.tensor([theta_1, 0.4, theta_d], dtype=torch.float64))
    matrix = basis @ torch.diag(eigenvalues) @ basis.mH
    lag_one = gram(matrix, basis[:, 0] + basis[:, 2], 400).diagonal(1).abs()
    top = abs(r_1 * complex(math.cos(theta_1), math.sin(theta_1)) + r_d * complex(math.cos(theta_d), math.sin(theta_d)))
    assert float(lag_one[0]) == pytest.approx(top / math.sqrt(2.0 * (r_1**2 + r_d**2)), rel=1e-10)
    assert float(lag_one[0]) < 1.0
    assert float(lag_one[-1]) == pytest.approx(1.0, abs=1e-6)


@property_test
@given(st.floats(0.1, 0.95))
def test_pb_1_by_hand_for_two_rates_and_a_write_on_both(r):
    injection = make_injection(Injection(method="diagonal"), 2).double()
    with torch.no_grad():
        decay = torch.tensor([0.9, 0.9 * r], dtype=torch.float64)
        injection.rates.log_rate.copy_(torch.log(-torch.log(decay) / injection.rates().dt))
    t = torch.arange(13, dtype=torch.float64)
    powers = 1.0 + r ** (2.0 * t)
    expected = (1.0 + r ** (t[:, None] + t[None, :])) / torch.sqrt(powers[:, None] * powers[None, :])
    assert close(gram(injection.matrix(), torch.ones(2, dtype=torch.float64)), expected)
    assert not is_toeplitz(expected, 1e-4)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_all_phases_zero_is_a_nonnegative_grouped_diagonal(groups):
    rotating = conformal(3, "pairwise", groups)
    plain = make_injection(Injection(method="grouped_diagonal", groups=groups), WIDTH).double()
    with torch.no_grad():
        rotating.omega.zero_()
        plain.rates.load_state_dict(rotating.rates.state_dict())
    assert torch.equal(rotating.matrix(), plain.matrix())
    assert float(plain.matrix().min()) >= 0.0
    h, drive = random(1, "h", 2, 3, WIDTH), random(1, "drive", 2, 3, WIDTH)
    assert close(rotating.step(h, rotating.operator(), drive), plain.step(h, plain.operator(), drive), 1e-14)
