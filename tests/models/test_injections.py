"""Injections: published values, parameter counts, the three stages, stacking, and a user's own operator."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch

from looprepro.config.cell import Injection as InjectionConfig
from looprepro.files.errors import ConfigError
from looprepro.models.charts import initial_omega, planar_rotations
from looprepro.models.injections import Injection, make_injection
from looprepro.randomness import parameter_generator

torch.set_num_threads(1)


def generator(name: str) -> torch.Generator:
    return parameter_generator(0, name)


def build(width: int = 8, start: bool = True, **keys: object) -> Injection:
    injection = make_injection(InjectionConfig(**keys), width)
    if start:
        injection.initialise(generator)
    return injection


METHODS = [
    {"method": "diagonal"},
    {"method": "diagonal", "decay": "fixed"},
    {"method": "grouped_diagonal", "groups": 2},
    *[
        {"method": "conformal", "chart": chart, "groups": g}
        for chart in ("pairwise", "cayley", "householder")
        for g in (1, 2, 4)
    ],
    {"method": "conformal", "chart": "cayley", "groups": 1, "decay": "fixed"},
]


def shaken(width: int = 8, seed: int = 1, **keys: object) -> Injection:
    """Float64, with every parameter moved away from its start."""
    injection = build(width, **keys).double()
    with torch.no_grad():
        for name, parameter in injection.named_parameters():
            noise = torch.randn(parameter.shape, generator=parameter_generator(seed, name), dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return injection


def test_the_diagonal_starts_at_parcaes_published_values():
    injection = build(768, method="diagonal")
    rates = injection.rates
    assert torch.allclose(rates.dt_bias, torch.tensor(0.2119354), rtol=0, atol=5e-8)
    assert torch.equal(rates.log_rate, torch.zeros(768))
    scale = rates()
    assert torch.allclose(scale.dt, torch.tensor(0.8047190), rtol=0, atol=2e-7)
    assert torch.allclose(scale.c, torch.tensor(0.4472136), rtol=0, atol=2e-7)
    assert torch.equal(injection.B, torch.eye(768))
    assert sum(p.numel() for p in injection.parameters()) == 591_360


def test_repeated_injection_alone_settles_at_1_4557503_e():
    injection = build(method="diagonal").double()
    e = torch.randn(1, 2, 8, generator=generator("e"), dtype=torch.float64)
    op = injection.operator()
    h, drive = torch.zeros_like(e), injection.drive(e, op)
    for _ in range(60):
        h = injection.step(h, op, drive)
    assert torch.allclose(h, 1.4557503 * e, rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "count"),
    [  # free parameters in A at d = 16, from the table of the specification
        ({"method": "diagonal"}, 32),
        ({"method": "grouped_diagonal", "groups": 2}, 4),
        ({"method": "conformal", "groups": 2}, 8 + 4),
        ({"method": "conformal", "groups": 8}, 8 + 16),
        ({"method": "conformal", "groups": 2, "chart": "cayley"}, 8 * 7 + 4),
        ({"method": "conformal", "groups": 1, "chart": "cayley"}, 8 * 15 + 2),
        ({"method": "conformal", "groups": 2, "chart": "householder"}, 128 + 4),
        ({"method": "diagonal", "decay": "fixed"}, 16),
        ({"method": "conformal", "groups": 2, "decay": "fixed"}, 8 + 2),
    ],
)
def test_free_parameters_of_the_operator_are_the_tables(keys, count):
    assert sum(p.numel() for p in build(16, **keys).parameters()) - 16 * 16 == count


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_every_method_starts_at_the_same_magnitude_and_step_size(keys):
    injection = build(16, **keys)
    singular = torch.linalg.svdvals(injection.matrix())
    assert torch.allclose(singular, torch.full((16,), math.sqrt(0.2), dtype=torch.float64), atol=3e-7)
    assert torch.allclose(injection.operator().dt, torch.full((16,), 0.8047190), atol=2e-7)


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_the_matrix_is_the_step_on_basis_vectors(keys):
    injection = shaken(**keys)
    basis = torch.eye(8, dtype=torch.float64)
    with torch.no_grad():
        columns = injection.step(basis[:, None], injection.operator(), torch.zeros(8, 1, 8, dtype=torch.float64))
    assert injection.matrix().dtype == torch.float64
    assert torch.allclose(injection.matrix(), columns[:, 0].T, rtol=0, atol=1e-14)
    # The base class, which a user's own operator relies on, finds the same matrix through the step alone.
    assert torch.allclose(Injection.matrix(injection), injection.matrix(), rtol=0, atol=1e-14)


def test_the_matrix_of_float32_parameters_is_assembled_in_float64():
    injection = build(64, method="conformal", groups=1)
    matrix = injection.matrix()
    c = math.sqrt(float((matrix[:, 0] ** 2).sum()))
    assert float((matrix.T @ matrix / c**2 - torch.eye(64, dtype=torch.float64)).abs().max()) < 1e-14
    dense = build(64, method="conformal", groups=1, chart="cayley").matrix()
    assert float((dense.T @ dense / (dense.T @ dense)[0, 0] - torch.eye(64, dtype=torch.float64)).abs().max()) < 1e-13


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_the_drive_is_dt_times_b_e_with_one_dt_per_group(keys):
    injection = shaken(**keys)
    e = torch.randn(2, 3, 8, generator=generator("e"), dtype=torch.float64)
    bias = injection.rates.dt_bias.detach()
    dt = torch.log1p(torch.exp(bias)).repeat_interleave(8 // bias.numel())
    expected = dt * torch.einsum("ij,rtj->rti", injection.B, e)
    assert torch.allclose(injection.drive(e, injection.operator()), expected, rtol=0, atol=1e-13)
    h = torch.randn(2, 3, 8, generator=generator("h"), dtype=torch.float64)
    written = injection.step(h, injection.operator(), expected)
    assert torch.allclose(written, torch.einsum("ij,rtj->rti", injection.matrix(), h) + expected, rtol=0, atol=1e-13)


def test_groups_are_contiguous_equal_blocks_of_coordinates():
    for keys in ({"method": "grouped_diagonal"}, {"method": "conformal"}, {"method": "conformal", "chart": "householder"}):
        injection = build(16, groups=4, **keys).double()
        with torch.no_grad():
            injection.rates.log_rate.copy_(torch.tensor([-2.0, -1.0, 0.0, 1.0]))
        norms = injection.matrix().norm(dim=0)
        expected = injection.rates().c.detach().repeat_interleave(4)
        assert torch.allclose(norms, expected, rtol=1e-12)
        assert len(norms.round(decimals=6).unique()) == 4


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("omega_init", ["rope", "uniform", "normal"])
def test_the_three_charts_start_from_the_same_rotation(groups, omega_init):
    starts = [
        build(16, method="conformal", groups=groups, chart=chart, omega_init=omega_init).matrix()
        for chart in ("pairwise", "cayley", "householder")
    ]
    assert torch.allclose(starts[1], starts[0], rtol=0, atol=2e-6)
    assert torch.allclose(starts[2], starts[0], rtol=0, atol=2e-6)
    assert float(starts[0].tril(-1).abs().max()) > 0.1  # and it does rotate


def test_the_first_plane_starts_turning_by_dt_and_the_rope_frequencies_follow():
    config = InjectionConfig(method="conformal", groups=1)
    omega = initial_omega(config, 8, generator)
    assert torch.allclose(omega, torch.tensor([1.0, 0.1, 0.01, 0.001]), rtol=1e-6)
    matrix = build(8, method="conformal", groups=1).matrix()
    angle = math.atan2(float(matrix[1, 0]), float(matrix[0, 0]))
    assert angle == pytest.approx(0.8047190, abs=1e-6)


def test_cayley_is_a_rotation_and_householder_is_unique_by_the_signs_of_r():
    cayley = shaken(method="conformal", groups=1, chart="cayley")
    assert float(torch.linalg.det(cayley.chart().detach())) == pytest.approx(1.0, abs=1e-12)
    skew = cayley.chart.skew.detach()[0]
    s = torch.zeros(8, 8, dtype=torch.float64)
    s[tuple(torch.triu_indices(8, 8, 1))] = skew  # row by row, the strict upper triangle
    s = s - s.T
    identity = torch.eye(8, dtype=torch.float64)
    assert torch.allclose(cayley.chart()[0], (identity - s) @ torch.linalg.inv(identity + s), rtol=0, atol=1e-12)

    householder = shaken(method="conformal", groups=2, chart="householder")
    for q, w in zip(householder.chart().detach(), householder.chart.dense.detach(), strict=True):
        r = q.T @ w
        assert bool((torch.diagonal(r) > 0).all())
        assert float(r.tril(-1).abs().max()) < 1e-13
        assert float((q.T @ q - torch.eye(4, dtype=torch.float64)).abs().max()) < 1e-13
        assert torch.sign(torch.linalg.det(q)) == torch.sign(torch.linalg.det(w))
    before = torch.linalg.det(householder.chart().detach())
    with torch.no_grad():
        householder.chart.dense[0, :, 0] *= -1.0
    after = torch.linalg.det(householder.chart().detach())
    assert torch.allclose(after, before * torch.tensor([-1.0, 1.0]), atol=1e-12)  # the other component of O(w) is within reach


def test_planar_rotations_turn_counterclockwise():
    quarter = planar_rotations(torch.tensor([[math.pi / 2, 0.0]], dtype=torch.float64))[0]
    expected = torch.tensor([[0.0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=torch.float64)
    assert torch.allclose(quarter, expected, atol=1e-15)


def test_fixed_decay_is_a_buffer_and_makes_the_diagonal_a_multiple_of_the_identity():
    injection = build(8, method="diagonal", decay="fixed", decay_value=0.75)
    assert torch.equal(injection.matrix(), 0.75 * torch.eye(8, dtype=torch.float64))
    assert "rates.c" in injection.state_dict()
    assert {name for name, _ in injection.named_parameters()} == {"B", "rates.dt_bias"}
    with torch.no_grad():
        injection.rates.dt_bias.add_(1.0)
    assert torch.equal(injection.matrix(), 0.75 * torch.eye(8, dtype=torch.float64))


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_three_runs_stacked_under_vmap_equal_three_runs(keys):
    runs = [shaken(seed=seed, **keys) for seed in (1, 2, 3)]
    parameters, buffers = torch.func.stack_module_state(runs)
    e = torch.randn(3, 2, 4, 8, generator=generator("e"), dtype=torch.float64)
    h = torch.randn(3, 2, 4, 8, generator=generator("h"), dtype=torch.float64)
    skeleton = build(start=False, **keys).double().to("meta")

    class TwoSteps(torch.nn.Module):
        def __init__(self, injection: Injection) -> None:
            super().__init__()
            self.injection = injection

        def forward(self, h: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
            op = self.injection.operator()
            drive = self.injection.drive(e, op)
            return self.injection.step(self.injection.step(h, op, drive), op, drive)

    module = TwoSteps(skeleton)
    static = {f"injection.{name}": b for name, b in runs[0].named_buffers() if name not in buffers}

    def one(parameters: dict, buffers: dict, h: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        state = {f"injection.{name}": tensor for name, tensor in (parameters | buffers).items()}
        return torch.func.functional_call(module, state | static, (h, e))

    def total(parameters: dict) -> torch.Tensor:
        return torch.vmap(one)(parameters, buffers, h, e).square().sum()

    stacked = torch.vmap(one)(parameters, buffers, h, e)
    gradients = torch.func.grad(total)(parameters)
    for i, run in enumerate(runs):
        alone = TwoSteps(run)(h[i], e[i])
        assert torch.allclose(stacked[i], alone, rtol=0, atol=1e-12)
        alone.square().sum().backward()
        for name, parameter in run.named_parameters():
            assert torch.allclose(gradients[name][i], parameter.grad, rtol=1e-9, atol=1e-11), name


@pytest.mark.parametrize("keys", METHODS, ids=str)
def test_gradients_of_operator_drive_and_step_are_the_numerical_ones(keys):
    injection = shaken(width=8, **keys)
    names = [name for name, _ in injection.named_parameters()]
    e = torch.randn(1, 1, 8, generator=generator("e"), dtype=torch.float64)
    h = torch.randn(1, 1, 8, generator=generator("h"), dtype=torch.float64, requires_grad=True)

    class Once(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.injection = injection

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            op = self.injection.operator()
            return self.injection.step(h, op, self.injection.drive(e, op))

    module = Once()

    def function(h: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        named = {f"injection.{name}": p for name, p in zip(names, parameters, strict=True)}
        return torch.func.functional_call(module, named, (h,))

    assert torch.autograd.gradcheck(function, (h, *injection.parameters()), fast_mode=True)


class Swapped(NamedTuple):
    dt: torch.Tensor
    gain: torch.Tensor


class Swap(Injection):
    """An own operator: exchanges the halves of the state, times a learned gain."""

    def __init__(self, config: InjectionConfig, width: int) -> None:
        super().__init__(config, width)
        self.gain = torch.nn.Parameter(torch.empty(()))

    def initialise(self, generator):
        super().initialise(generator)
        torch.nn.init.constant_(self.gain, 0.5)

    def operator(self, dtype=None):
        return Swapped(torch.ones((), dtype=self.gain.dtype), self.gain)

    def step(self, h, op, drive):
        return op.gain * h.roll(self.width // 2, -1) + drive


class Careless(Swap):
    """Has a parameter but no start of its own."""

    initialise = Injection.initialise


def test_an_own_operator_is_found_by_its_name_and_has_a_matrix(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "own_operators", __import__("types").ModuleType("own_operators"))
    module = __import__("sys").modules["own_operators"]
    module.Swap, module.Careless, module.NotOne = Swap, Careless, dict
    injection = build(4, method="own_operators:Swap")
    expected = 0.5 * torch.tensor([[0.0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.float64)
    assert torch.equal(injection.matrix(), expected)
    with pytest.raises(ConfigError, match="no initialise"):
        build(4, method="own_operators:Careless")
    with pytest.raises(ConfigError, match="not a subclass"):
        build(4, method="own_operators:NotOne")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        build(4, method="own_operators:Missing")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        build(4, method="no_such_package_here:Swap")


def test_sizes_that_do_not_fit_are_refused_with_a_remedy():
    with pytest.raises(ConfigError, match="odd"):
        make_injection(InjectionConfig(), 7)
    with pytest.raises(ConfigError, match="does not divide the 6 planes"):
        make_injection(InjectionConfig(method="conformal", groups=4), 12)
