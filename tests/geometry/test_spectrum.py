"""Eigenvalues in order, and what a measurement refuses."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.geometry.operator import GeometryError
from looprepro.geometry.powers import powers
from looprepro.geometry.probes import sphere
from looprepro.geometry.spectrum import spectrum

torch.set_num_threads(1)


def test_a_plane_has_the_eigenvalues_c_e_to_the_plus_minus_i_theta(orthogonal, planes):
    basis = orthogonal(6)
    values = spectrum(basis @ planes([0.9, 0.9, 0.4], [0.3, 2.0, 1.0]) @ basis.T)
    expected = [0.9 * complex(math.cos(a), math.sin(a)) for a in (-2.0, -0.3, 0.3, 2.0)]
    expected += [0.4 * complex(math.cos(a), math.sin(a)) for a in (-1.0, 1.0)]
    assert values.dtype == torch.complex128
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.complex128), rtol=0, atol=1e-12)


def test_cq_lies_on_one_circle(orthogonal):
    torch.testing.assert_close(
        spectrum(0.4 * orthogonal(32)).abs(), torch.full((32,), 0.4, dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_a_diagonal_has_its_entries_largest_first():
    values = spectrum(torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64).diag())
    assert values.tolist() == [0.9, 0.5, 0.2]


def test_the_zero_matrix_has_a_spectrum():
    assert spectrum(torch.zeros(3, 3, dtype=torch.float64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("matrix", "reason"),
    [
        (torch.zeros(2, 3, dtype=torch.float64), "shape"),
        (torch.zeros(0, 0, dtype=torch.float64), "shape"),
        (torch.zeros(4, dtype=torch.float64), "shape"),
        (torch.eye(3), "float64"),
        (torch.full((2, 2), torch.nan, dtype=torch.float64), "not finite"),
    ],
)
def test_what_is_not_a_finite_float64_operator_is_refused_with_the_reason(matrix, reason):
    with pytest.raises(GeometryError, match=reason):
        spectrum(matrix)
    with pytest.raises(GeometryError, match=reason):
        powers(matrix, sphere(3, 2), 4)


def test_the_operator_acts_on_columns():
    shear = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    walk = powers(shear, torch.tensor([[0.0, 3.0]], dtype=torch.float64), 2)  # (0, 3), (3, 3), (6, 3)
    directions = torch.tensor([[0.0, 1.0], [0.5**0.5, 0.5**0.5], [0.8**0.5, 0.2**0.5]], dtype=torch.float64)
    torch.testing.assert_close(walk.directions[:, 0], directions)
    norms = torch.tensor([9.0, 18.0, 45.0], dtype=torch.float64).sqrt()
    torch.testing.assert_close(walk.log_norms[:, 0], norms.log())


def test_a_vector_that_comes_to_zero_has_no_direction():
    nilpotent = torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)
    with pytest.raises(GeometryError, match=r"A\^2 u is zero"):
        powers(nilpotent, torch.tensor([[1.0, 1.0]], dtype=torch.float64), 2)


def test_probes_of_another_width_or_type_are_refused():
    matrix = torch.eye(3, dtype=torch.float64)
    for probes in (sphere(4, 2), sphere(3, 2).float(), sphere(3, 1)[0]):
        with pytest.raises(GeometryError, match="Give float64 probes"):
            powers(matrix, probes, 2)
    with pytest.raises(GeometryError, match="negative"):
        powers(matrix, sphere(3, 2), -1)


def test_a_parameter_that_still_needs_gradients_is_measured_without_them(orthogonal):
    walk = powers(orthogonal(4).requires_grad_(), sphere(4, 2), 3)
    assert not walk.directions.requires_grad
