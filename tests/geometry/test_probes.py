"""Probes: seeded, uniform on the sphere, and their blockwise parts."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from looprepro.geometry.operator import GeometryError
from looprepro.geometry.probes import blockwise, sphere

torch.set_num_threads(1)


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_probes_are_256_unit_vectors(width):
    probes = sphere(width)
    assert probes.shape == (256, width)
    assert probes.dtype == torch.float64
    assert (probes.norm(dim=1) - 1).abs().max() < 1e-14


def test_probes_are_uniform_on_the_sphere():
    probes = sphere(5, 4000)
    # The square of any fixed coordinate of a uniform unit vector follows Beta(1/2, (d - 1)/2): along an axis and along a
    # diagonal, where a law with a preferred axis would differ.
    diagonal = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0], dtype=torch.float64) / 5**0.5
    for direction in (*torch.eye(5, dtype=torch.float64), diagonal):
        along = probes @ direction
        assert stats.kstest((along**2).numpy(), stats.beta(0.5, 2.0).cdf).pvalue > 1e-3
        assert abs(along.mean().item()) < 4 / (5 * 4000) ** 0.5
    second = probes.T @ probes / 4000
    assert (second - torch.eye(5, dtype=torch.float64) / 5).abs().max() < 0.02


def test_the_same_probes_come_again_and_more_probes_keep_the_first():
    assert torch.equal(sphere(10, 50), sphere(10, 256)[:50])
    assert not torch.equal(sphere(10, 50, seed=1), sphere(10, 50))


def test_blockwise_probes_are_the_parts_of_the_sphere_probes_inside_each_group():
    whole, inside = sphere(12, 20), blockwise(12, 3, 20)
    assert inside.shape == (3, 20, 12)
    for g in range(3):
        part = torch.zeros_like(whole)
        part[:, 4 * g : 4 * g + 4] = whole[:, 4 * g : 4 * g + 4]
        torch.testing.assert_close(inside[g], part / part.norm(dim=1, keepdim=True), rtol=1e-14, atol=0)


def test_groups_that_do_not_divide_the_width_are_refused():
    with pytest.raises(GeometryError, match="5 groups do not divide width 12"):
        blockwise(12, 5)
