"""Sampled depths: Parcae's published vectors, and the paper's conditioned Poisson."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from looprepro import randomness
from looprepro.config.cell import Recurrence
from looprepro.files.errors import LoopreproError
from looprepro.models.recurrence import depths, parcae_compatible_depths, parcae_depths

torch.set_num_threads(1)
GRID = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000
"""Every quantile once: moments of the inverse distribution function without sampling noise."""


@pytest.mark.parametrize(
    ("step", "without", "with_gradient"),
    [
        (0, [2, 5, 0, 3, 4, 11, 4, 5], [4, 4, 3, 4, 4, 4, 4, 4]),
        (1, [1, 7, 4, 6, 10, 7, 0, 2], [4, 4, 4, 4, 4, 4, 3, 4]),
        (2, [5, 7, 3, 7, 7, 6, 4, 3], [4] * 8),
    ],
)
def test_parcaes_published_vectors(step, without, with_gradient):
    n, k = parcae_depths(step, 8, 8, 4)
    assert n.tolist() == without
    assert k.tolist() == with_gradient
    config = Recurrence(scheme="poisson-truncated-full", mean=8.0, maximum=None, backprop_depth=4, parcae_compat=True)
    assert parcae_compatible_depths(config, step, 8).tolist() == (n + k).tolist()


def test_parcae_draws_leave_the_global_generator_alone_and_differ_by_rank():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = parcae_depths(3, 64, 8, 4, rank=0)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(first[0], parcae_depths(3, 64, 8, 4, rank=1)[0])


def test_parcae_compat_refuses_schemes_without_published_vectors():
    with pytest.raises(LoopreproError, match="poisson-truncated-full"):
        parcae_compatible_depths(Recurrence(), 0, 8)


def test_the_papers_depths_are_poisson_24_given_1_to_32_with_mean_23_5():
    drawn = depths(Recurrence(scheme="poisson-conditioned", mean=24.0, maximum=32), GRID)
    assert drawn.dtype == torch.int64
    assert int(drawn.min()) >= 1
    assert int(drawn.max()) == 32
    law = stats.poisson(24)
    inside = law.cdf(32) - law.pmf(0)
    for depth in (10, 20, 24, 32):
        assert float((drawn == depth).double().mean()) == pytest.approx(law.pmf(depth) / inside, abs=1e-5)
    assert float(drawn.double().mean()) == pytest.approx(23.5, abs=0.05)  # clamped at 32 instead it would be 23.9


def test_poisson_full_is_clamped_below_at_1_with_no_upper_cut():
    config = Recurrence(scheme="poisson-truncated-full", mean=8.0, maximum=None, backprop_depth=4)
    drawn = depths(config, GRID)
    assert float(drawn.double().mean()) == pytest.approx(8.0003, abs=2e-4)
    assert float(drawn.clamp(max=4).double().mean()) == pytest.approx(3.9408, abs=2e-4)
    assert float((drawn >= 16).double().mean()) == pytest.approx(0.0082, abs=1e-4)
    assert float((drawn < 4).double().mean()) == pytest.approx(0.0424, abs=1e-4)
    assert depths(config, torch.tensor([0.0, 1.0 - 2.0**-53], dtype=torch.float64)).tolist()[0] == 1
    assert torch.equal(depths(Recurrence(scheme="poisson-full", mean=8.0, maximum=None), GRID), drawn)


def test_more_steps_of_gradient_than_the_mean_raise_the_mean_as_in_parcae():
    config = Recurrence(scheme="poisson-truncated-full", mean=2.0, maximum=None, backprop_depth=6)
    assert float(depths(config, GRID).double().mean()) == pytest.approx(6.0 + math.exp(-6.0), abs=1e-3)


def test_fixed_depth_is_the_maximum_and_every_scheme_keeps_the_shape():
    u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, 0, torch.arange(5), 1)[:, 0]
    assert depths(Recurrence(scheme="fixed", maximum=7), u).tolist() == [7] * 5
    assert depths(Recurrence(), u).shape == (5,)


def test_a_depth_depends_on_its_row_alone():
    rows = torch.arange(100)
    u = randomness.uniform(randomness.DEPTH_SEED, randomness.DEPTH, 4, rows, 1)[:, 0]
    assert torch.equal(depths(Recurrence(), u)[37:40], depths(Recurrence(), u[37:40]))
