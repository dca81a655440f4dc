"""Algorithm 1 and the theory of the paper's section 3: what damping does, what bounds a loop, what truncation costs."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from looprepro import randomness
from looprepro.config.reasoners import FixedPointReasoner as Config
from looprepro.config.reasoners import SolverFields
from looprepro.models.fixed_point.loop import Shapes
from looprepro.models.fixed_point.reasoner import FixedPointReasoner
from looprepro.models.fixed_point.scaling import closed_forms
from looprepro.models.fixed_point.solver import Iterate, advance, begin, relative_residual, solve
from looprepro.models.fixed_point.stablemax import answer_loss, log_stablemax
from looprepro.models.recursive.anderson import anderson

torch.set_num_threads(1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spiral(real: float, imaginary: float) -> Tensor:
    """A 2 x 2 Jacobian with eigenvalues real +- i imaginary."""
    return torch.tensor([[real, -imaginary], [imaginary, real]], dtype=torch.float64)


def distances(jacobian: Tensor, eta: float, steps: int) -> tuple[float, float]:
    """|z - z*| before and after ``steps`` of the damped iteration of f(z) = z* + J (z - z*), by :func:`advance`."""
    fixed = torch.tensor([[[3.0, -2.0]]], dtype=torch.float64)
    settings = SolverFields(gamma=1.0, tolerance=1e-30, patience=10**9)
    state = begin(fixed + torch.tensor([1e-3, 0.0], dtype=torch.float64), settings, eta)
    first = float((state.z - fixed).norm())
    for _ in range(steps):
        state = advance(state, fixed + (state.z - fixed) @ jacobian.T, settings)
    return first, float((state.z - fixed).norm())


@pytest.mark.parametrize(("real", "imaginary"), [(-0.5, 1.5), (0.5, 1.0), (0.0, 3.0), (-2.0, 0.5)])
def test_damping_stabilises_a_spiral_exactly_below_eta_0(real: float, imaginary: float) -> None:
    """Theorem 3: eta_0 = 2 (1 - Re) / |lambda - 1|^2; undamped the iteration leaves, |lambda| being above 1."""
    jacobian = spiral(real, imaginary)
    eta_0 = 2.0 * (1.0 - real) / ((1.0 - real) ** 2 + imaginary**2)
    assert abs(complex(real, imaginary)) > 1.0 > eta_0
    first, last = distances(jacobian, 1.0, 100)
    assert last > 10.0 * first
    first, last = distances(jacobian, eta_0 * 1.01, 1500)
    assert last > 2.0 * first
    first, last = distances(jacobian, eta_0 * 0.99, 1500)
    assert last < 0.5 * first


def test_patience_finds_a_step_that_stabilises_the_spiral() -> None:
    fixed = torch.tensor([[[3.0, -2.0]]], dtype=torch.float64)
    jacobian = spiral(-0.5, 1.5)

    def f(z: Tensor) -> Tensor:
        return fixed + (z - fixed) @ jacobian.T

    damped = solve(f, fixed + 1.0, SolverFields(gamma=0.9, tolerance=1e-6), cap=2000)
    assert bool(damped.converged.all())
    torch.testing.assert_close(damped.state.z, fixed, rtol=1e-5, atol=1e-5)
    assert float(damped.state.eta) < 0.6667  # eta_0 = 2 * 1.5 / (1.5^2 + 1.5^2)
    plain = solve(f, fixed + 1.0, SolverFields(halting="fixed", tolerance=1e-6), cap=200)
    assert not bool(plain.converged.any())


def test_damping_keeps_the_fixed_points() -> None:
    matrix = drawn(6, 6)
    matrix = 0.7 * matrix / torch.linalg.matrix_norm(matrix, 2)
    offset = drawn(1, 1, 6, seed=1)

    def f(z: Tensor) -> Tensor:
        return torch.tanh(z @ matrix.T + offset)

    found = []
    for eta in (1.0, 0.5, 0.1):
        state = begin(drawn(1, 1, 6, seed=2), SolverFields(tolerance=1e-30, gamma=1.0, patience=10**9), eta)
        for _ in range(2000):
            state = advance(state, f(state.z), SolverFields(tolerance=1e-30, gamma=1.0, patience=10**9))
        torch.testing.assert_close(f(state.z), state.z)
        found.append(state.z)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])


def test_the_coefficients_have_the_values_of_the_closed_forms() -> None:
    """Worked out by hand for L = 2: (0.75, 0.25) and (0.5, 0.5)."""
    for a1, a2, b1, b2 in ((0.75, 0.25, 0.3367857, 0.9208984), (0.5, 0.5, 0.516667, 0.96875)):
        found = closed_forms(torch.tensor(a1, dtype=torch.float64), torch.tensor(a2, dtype=torch.float64), 4)
        assert float(found.b2) == pytest.approx(b2, abs=1e-6)
        assert float(found.b1) == pytest.approx(b1, abs=1e-6)
    one = closed_forms(torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.25, dtype=torch.float64), 4)
    assert float(one.b1) == pytest.approx(0.75 / 4)  # b2 / 2L


def bounded_loop(aligned: Tensor | None, bound: float) -> FixedPointReasoner:
    """A loop whose sub-layers return vectors of norm ``bound`` per token, along ``aligned`` where given."""
    config = Config(width=8, heads=2, layers=2, prefix=0, positions="none", residual_scale="fixed", alpha_1=0.75, alpha_2=0.25)
    model = FixedPointReasoner(config, Shapes(5, 4, False)).double()
    model.initialise(0)
    for layer in model.loop.layers:
        for name in ("mixer", "mlp"):
            inner = getattr(layer, name).forward

            def limited(*arguments: Any, inner: Any = inner) -> Tensor:
                output = inner(*arguments) if aligned is None else aligned.expand(arguments[0].shape)
                return bound * output / output.norm(dim=-1, keepdim=True)

            getattr(layer, name).forward = limited
    return model


@pytest.mark.parametrize("aligned", [False, True])
def test_activations_stay_below_the_bound_of_theorem_1(aligned: bool) -> None:
    """limsup |z^0| <= a2 c_f + |x|, per token; attained where every sub-layer pushes along x."""
    x = 2.0 * torch.nn.functional.normalize(drawn(1, 4, 8, seed=3), dim=-1)
    model = bounded_loop(x if aligned else None, bound=5.0)
    z = 1000.0 * drawn(1, 4, 8, seed=4)
    norms = []
    with torch.no_grad():
        for _ in range(60):
            z = model.iterate(z, x)
            coefficients = model.loop.scaling(z)
            norms.append((coefficients.a2 * z + coefficients.b2 * x).norm(dim=-1).max())
    limit = 0.25 * 5.0 + 2.0
    assert float(norms[0]) > 10.0 * limit
    assert max(map(float, norms[30:])) <= limit * (1.0 + 1e-6)
    if aligned:
        assert float(norms[-1]) == pytest.approx(limit, rel=1e-6)


def test_a_plain_pre_norm_loop_with_the_same_sub_layers_is_not_bounded() -> None:
    x = 2.0 * torch.nn.functional.normalize(drawn(1, 4, 8, seed=3), dim=-1)
    model = bounded_loop(x, bound=5.0)
    model.loop.scaling.config = model.config.model_copy(update={"residual_scale": "none"})
    z = drawn(1, 4, 8, seed=4)
    with torch.no_grad():
        for _ in range(60):
            z = model.iterate(z, x)
    assert float(z.norm(dim=-1).min()) > 60 * 20.0  # 2L bounded terms and x per iteration, all along x


@pytest.mark.parametrize("bent", [False, True])
def test_a_loop_contracts_at_the_rate_of_theorem_2(bent: bool) -> None:
    """Layers of Lipschitz constant 3 under a2 = 1/4: one fixed point from every start, |z_{i+1} - z_i| <= (3/4)^i |z_1 - z_0|,
    attained where the layers only turn and stretch; with a constant of 5 those leave."""
    x, turn = drawn(1, 4, 8, seed=3), torch.linalg.qr(drawn(8, 8, seed=5)).Q

    def changes(lipschitz: float, start: Tensor, steps: int) -> tuple[list[float], Tensor]:
        model = bounded_loop(None, bound=1.0)  # its sub-layers are replaced as a whole
        first, second = model.loop.layers
        first.forward = lambda z, rope, scale: lipschitz * (z @ turn)
        second.forward = lambda z, rope, scale: torch.sin(z) if bent else z
        states = [start]
        with torch.no_grad():
            for _ in range(steps):
                states.append(model.iterate(states[-1], x))
        return [float((b - a).norm()) for a, b in pairwise(states)], states[-1]

    found, end = changes(3.0, 10.0 * drawn(1, 4, 8, seed=4), 120)
    assert all(found[i] <= 0.75**i * found[0] * (1.0 + 1e-9) for i in range(60))
    if not bent:
        assert found[40] == pytest.approx(0.75**40 * found[0], rel=1e-6)
        assert changes(5.0, drawn(1, 4, 8, seed=4), 40)[0][-1] > 1000.0
    _, other = changes(3.0, -drawn(1, 4, 8, seed=6), 120)
    torch.testing.assert_close(end, other)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_the_truncated_gradient_is_within_proposition_1(k: int) -> None:
    """|exact - truncated| <= |P| sqrt(D) sigma^k / (1 - sigma) |delta|, with the gradient that k undamped steps really have."""
    width, sigma = 6, 0.6
    matrix = drawn(width, width)
    matrix = (sigma * matrix / torch.linalg.matrix_norm(matrix, 2)).requires_grad_()
    offset = 0.01 * drawn(1, 1, width, seed=1)

    def f(z: Tensor) -> Tensor:
        return torch.tanh(z @ matrix.T) + offset

    settings = SolverFields(tolerance=1e-30)
    fixed = torch.zeros(1, 1, width, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(300):
            fixed = f(fixed)
    delta = drawn(width, seed=2)
    state = begin(fixed, settings)
    for _ in range(k):
        state = advance(state, f(state.z), settings)
    (truncated,) = torch.autograd.grad((state.z.flatten() * delta).sum(), matrix)
    z = fixed.flatten().requires_grad_()
    jacobian = torch.autograd.functional.jacobian(lambda v: f(v.view(1, 1, -1)).flatten(), z)
    by_parameter = torch.autograd.functional.jacobian(lambda m: (torch.tanh(fixed @ m.T) + offset).flatten(), matrix).reshape(
        width, -1
    )
    exact = (by_parameter.T @ torch.linalg.solve((torch.eye(width) - jacobian).T.double(), delta)).view(width, width)
    norm = float(torch.linalg.matrix_norm(jacobian, 2))
    assert norm < 1.0
    bound = float(torch.linalg.matrix_norm(by_parameter, 2)) * math.sqrt(width) * norm**k / (1 - norm) * float(delta.norm())
    error = float((exact - truncated).norm())
    assert 0.0 < error <= bound
    assert error < 0.7**k * float(exact.norm())  # and it falls with k


# Eta and patience ---------------------------------------------------------------------------------------------------


def pushed(state: Iterate, residual: float, settings: SolverFields) -> Iterate:
    """One step with an f whose relative residual is ``residual``."""
    ones = torch.ones_like(state.z)
    return advance(Iterate(**(state.tensors() | {"z": (1.0 - residual) * ones})), ones, settings)


def test_eta_decays_after_patience_without_a_smaller_residual_and_never_grows() -> None:
    settings = SolverFields(gamma=0.9, patience=3)
    state = begin(torch.ones(1, 1, 2), settings)
    etas = []
    for residual in (0.9, 0.8, 0.7, 0.75, 0.75, 0.75, 0.65, 0.7, 0.7, 0.69, 0.68, 0.5):
        state = pushed(state, residual, settings)
        etas.append(round(float(state.eta), 4))
    # Three iterations without a smaller residual than 0.7; later three without a smaller one than 0.65.
    assert etas == [1.0] * 5 + [0.9] * 4 + [0.81] * 3
    assert etas == sorted(etas, reverse=True)
    assert int(state.count) == 12
    assert float(state.best) == pytest.approx(0.5)


def test_eta_never_decays_while_the_residual_falls() -> None:
    settings = SolverFields(gamma=0.5, patience=1)
    state = begin(torch.ones(1, 1, 2), settings)
    for step in range(50):
        state = pushed(state, 0.9 - 0.01 * step, settings)
    assert float(state.eta) == 1.0


def test_the_step_uses_eta_as_it_was_before_its_decay() -> None:
    settings = SolverFields(gamma=0.5, patience=1)
    state = pushed(begin(torch.ones(1, 1, 2), settings), 0.5, settings)
    state = pushed(state, 0.5, settings)  # no better: eta halves now, but this step was a full one
    assert float(state.eta) == 0.5
    assert torch.equal(state.z, torch.ones(1, 1, 2))
    state = pushed(state, 0.5, settings)
    torch.testing.assert_close(state.z, torch.full((1, 1, 2), 0.75))


@pytest.mark.parametrize(
    ("dtype", "gamma", "decays"),
    [
        ("float32", 0.9, 66),
        ("float32", 0.99, 688),
        ("float32", 0.995, 1379),
        ("bfloat16", 0.9, 65),
        ("bfloat16", 0.99, 568),
        ("bfloat16", 0.995, 1277),
        ("bfloat16", 0.997, 1277),
    ],
)
def test_decays_until_a_sample_is_given_up(dtype: Any, gamma: float, decays: int) -> None:
    """bfloat16 rounds gamma (0.9 -> 0.8984, 0.995 to 0.998 -> 0.99609): the released presets 0.996 and 0.997 are one."""
    settings = SolverFields(gamma=gamma, patience=1, eta_dtype=dtype)
    state = begin(torch.ones(1, 1, 1), settings)
    steps = 0
    while float(state.eta) >= 1e-3:
        state = Iterate(**(state.tensors() | {"best": torch.zeros(1)}))
        state = pushed(state, 0.5, settings)
        steps += 1
    assert steps == decays


def test_gamma_0999_never_decays_in_bfloat16() -> None:
    settings = SolverFields(gamma=0.999, patience=1, eta_dtype="bfloat16")
    state = begin(torch.ones(1, 1, 1), settings)
    for _ in range(20):
        state = pushed(state, 0.5, settings)
    assert float(state.eta) == 1.0


def test_the_residual_is_that_of_f_by_token_or_over_all() -> None:
    z = torch.tensor([[[0.0, 1.0], [10.0, 0.0]]])
    f = torch.tensor([[[0.5, 1.0], [10.0, 1.0]]])
    assert float(relative_residual(z, f, "token")) == pytest.approx(0.5)  # token 0: 0.5 / 1; token 1: 1 / 10
    assert float(relative_residual(z, f, "global")) == pytest.approx(0.1)  # 1 / 10
    counted = torch.tensor([[False, True]])
    assert float(relative_residual(z, f, "token", counted)) == pytest.approx(0.1)
    assert not float(relative_residual(z * math.nan, f, "token")) < 1e9


# Halting ------------------------------------------------------------------------------------------------------------


def model_and_inputs(rows: int) -> tuple[FixedPointReasoner, Tensor, Tensor]:
    config = Config(width=16, heads=2, layers=1, prefix=2, convolution="1d", alpha_1=0.5, alpha_2=0.5)
    model = FixedPointReasoner(config, Shapes(9, 6, False))
    model.initialise(1)
    index = torch.arange(rows)
    x = model.frame.embed(randomness.integers(0, randomness.WORDS, 0, index, 6, 9), None).detach()
    z = randomness.truncated_normal(0, randomness.STATE, 0, index, 8 * 16, 2.0).reshape(rows, 8, 16)
    return model, model.initial_state(z), x


def test_an_answer_does_not_depend_on_who_else_is_in_the_batch() -> None:
    """Bitwise, at one batch shape: rows 0 to 2 beside two quite different sets of other rows."""
    model, z, x = model_and_inputs(12)
    settings = SolverFields(gamma=0.9, tolerance=0.1)
    for others in (slice(3, 6), slice(9, 12)):
        chosen = torch.cat([torch.arange(3), torch.arange(12)[others]])
        found = solve(lambda s, c=chosen: model.iterate(s, x[c]), z[chosen], settings, cap=60)
        if others.start == 3:
            first = found
    assert len(set(first.state.count.tolist())) > 1, "rows must halt at different times for this test to mean anything"
    for name, tensor in found.state.tensors().items():
        assert torch.equal(tensor[:3], first.state.tensors()[name][:3]), name


def test_a_frozen_sample_keeps_the_state_of_its_first_halt() -> None:
    model, z, x = model_and_inputs(6)
    settings = SolverFields(gamma=0.9, tolerance=1e-3)
    found = solve(lambda s: model.iterate(s, x), z, settings, cap=60)
    for row in range(6):
        alone = solve(lambda s, r=row: model.iterate(s, x[r : r + 1]), z[row : row + 1], settings, cap=60)
        assert int(alone.state.count) == int(found.state.count[row])
        torch.testing.assert_close(found.state.z[row], alone.state.z[0], rtol=1e-4, atol=1e-4)


def test_batch_wide_halting_goes_on_until_the_last() -> None:
    model, z, x = model_and_inputs(6)
    settings = SolverFields(gamma=0.9, tolerance=1e-3)
    frozen = solve(lambda s: model.iterate(s, x), z, settings, cap=60)
    whole = solve(lambda s: model.iterate(s, x), z, settings, cap=60, freeze=False)
    assert set(whole.state.count.tolist()) == {int(whole.state.count.max())}
    assert int(whole.state.count.min()) >= int(frozen.state.count.max())


def test_the_cap_and_the_smallest_step_end_every_iteration() -> None:
    ones = torch.ones(2, 1, 1)
    capped = solve(lambda z: -2.0 * z, ones, SolverFields(gamma=1.0), cap=7)
    assert capped.state.count.tolist() == [7, 7]
    assert not bool(capped.converged.any())
    given_up = solve(lambda z: -2.0 * z, ones, SolverFields(gamma=0.05, patience=1), cap=100)
    assert given_up.state.count.tolist() == [4, 4]  # the first residual is a best one; then eta 0.05, 0.0025, 0.000125
    assert float(given_up.state.eta[0]) < 1e-3


def test_anderson_is_faster_than_plain_iteration_and_rows_do_not_mix() -> None:
    matrix = drawn(10, 10)
    matrix = 0.95 * (matrix + matrix.T) / torch.linalg.matrix_norm(matrix + matrix.T, 2)
    offset = drawn(4, 1, 10, seed=1)

    def f(z: Tensor, rows: slice = slice(None)) -> Tensor:
        return z @ matrix.T + offset[rows]

    exact = torch.linalg.solve(torch.eye(10).double() - matrix, offset.mT).mT
    found = anderson(f, torch.zeros(4, 1, 10).double(), memory=5, iterations=200, tolerance=1e-6)
    plain = solve(f, torch.zeros(4, 1, 10).double(), SolverFields(halting="fixed", tolerance=1e-6), cap=400)
    torch.testing.assert_close(found.z, exact, rtol=1e-4, atol=1e-4)
    assert int(found.count.max()) < 0.5 * int(plain.state.count.min())
    alone = anderson(lambda z: f(z, slice(2, 3)), torch.zeros(1, 1, 10).double(), memory=5, iterations=200, tolerance=1e-6)
    assert int(alone.count) == int(found.count[2])
    torch.testing.assert_close(alone.z[0], found.z[2])


# Loss ---------------------------------------------------------------------------------------------------------------


def test_stablemax_is_the_piecewise_ratio_and_has_a_finite_gradient() -> None:
    logits = torch.tensor([[2.0, 0.0, -3.0]], requires_grad=True)
    expected = torch.tensor([3.0, 1.0, 0.25], dtype=torch.float64) / 4.25
    torch.testing.assert_close(log_stablemax(logits).exp()[0], expected)
    extreme = torch.tensor([[1e30, -1e30, 1.0]], requires_grad=True)
    log_stablemax(extreme).sum().backward()
    assert bool(extreme.grad.isfinite().all())  # type: ignore[union-attr]


def test_the_loss_of_a_row_is_the_mean_over_its_scored_positions() -> None:
    logits = drawn(2, 3, 4)
    targets = torch.tensor([[1, -100, 2], [-100, -100, 0]])
    logs = log_stablemax(logits)
    expected = torch.stack([-(logs[0, 0, 1] + logs[0, 2, 2]) / 2, -logs[1, 2, 0]])
    torch.testing.assert_close(answer_loss(logits, targets, -100), expected)
