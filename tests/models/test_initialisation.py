"""Scaled-zero orthogonal initialisation: the specification's singular values, and one generator per name."""

from __future__ import annotations

import math

import pytest
import torch

from looprepro.models.initialisation import base_std, orthogonal
from looprepro.randomness import parameter_generator

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("width", "std"), [(640, 0.025), (768, 0.0228218), (1024, 0.0197642), (1280, 0.0176777), (1536, 0.0161374)]
)
def test_base_std_of_every_published_width(width, std):
    assert base_std(width) == pytest.approx(std, abs=5e-8)


@pytest.mark.parametrize(
    ("rows", "columns", "singular"),
    [
        (96, 96, math.sqrt(2 / 5)),  # q, k, v, C: 0.6325
        (384, 96, math.sqrt(8 / 5)),  # fc: 1.2649
        (96, 384, math.sqrt(8 / 5)),  # fewer rows than columns: transposed
        (1000, 96, math.sqrt(2 * 1000 / (5 * 96))),  # embedding: std sqrt(V)
    ],
)
def test_all_singular_values_are_equal(rows, columns, singular):
    matrix = orthogonal(rows, columns, base_std(96), parameter_generator(0, "w"))
    assert matrix.shape == (rows, columns)
    values = torch.linalg.svdvals(matrix)
    assert torch.allclose(values, torch.full_like(values, singular), rtol=1e-10)
    assert float(matrix.std()) == pytest.approx(base_std(96), rel=0.01)


def test_the_published_embedding_singular_value_of_the_140m_model():
    assert base_std(768) * math.sqrt(32768) == pytest.approx(4.131, abs=5e-4)


def test_orthogonal_draws_have_no_preferred_sign():
    first = torch.stack([orthogonal(4, 4, 1.0, parameter_generator(seed, "w"))[:, 0] for seed in range(400)])
    assert float(first.mean(dim=0).abs().max()) < 4 / math.sqrt(400)
    determinants = torch.stack([orthogonal(4, 4, 0.5, parameter_generator(seed, "w")).det().sign() for seed in range(400)])
    assert 120 < int((determinants > 0).sum()) < 280
