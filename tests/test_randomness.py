"""Counter-based randomness: known answers, independence of batching, distributions."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from looprepro import randomness

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_agrees_with_the_random123_known_answers(counter, key, expected):
    drawn = randomness.philox(tuple(torch.tensor([c]) for c in counter), tuple(torch.tensor([k]) for k in key))
    assert tuple(int(word) for word in drawn) == expected


def test_a_row_draws_the_same_in_any_batch_and_for_a_tensor_of_seeds():
    rows = torch.tensor([5, 2**33 + 1, 7])
    together = randomness.words(3, randomness.WORDS, 9, rows, 10)
    for i, row in enumerate(rows):
        assert torch.equal(together[i : i + 1], randomness.words(3, randomness.WORDS, 9, row.reshape(1), 10))
    stacked = randomness.words(torch.tensor([3, 4, 3]), randomness.WORDS, 9, rows, 10)
    assert torch.equal(stacked[[0, 2]], together[[0, 2]])
    assert torch.equal(stacked[1:2], randomness.words(4, randomness.WORDS, 9, rows[1:2], 10))


def test_seed_stream_step_and_row_each_change_the_draw():
    row = torch.tensor([1])
    base = randomness.words(1, 1, 1, row, 8)
    for other in (
        randomness.words(2, 1, 1, row, 8),
        randomness.words(1, 2, 1, row, 8),
        randomness.words(1, 1, 2, row, 8),
        randomness.words(1, 1, 1, row + 1, 8),
    ):
        assert not torch.equal(base, other)


def test_uniform_integers_and_truncated_normal_follow_their_laws():
    rows = torch.arange(200)
    u = randomness.uniform(0, 1, 0, rows, 100)
    assert u.dtype == torch.float64
    u = u.flatten().numpy()
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    counts = torch.bincount(randomness.integers(0, 2, 0, rows, 300, 60).flatten(), minlength=60).numpy()
    assert stats.chisquare(counts).pvalue > 1e-3
    z = randomness.truncated_normal(0, 3, 0, rows, 100).double().flatten().numpy()
    assert abs(z).max() <= 3.0
    assert stats.kstest(z, stats.truncnorm(-3, 3).cdf).pvalue > 1e-3


def test_integers_refuses_a_range_with_a_visible_bias():
    with pytest.raises(ValueError, match="65536"):
        randomness.integers(0, 1, 0, torch.tensor([0]), 1, 70_000)


def test_parameter_generators_differ_by_name_and_seed_and_repeat():
    draw = lambda seed, name: torch.randn(4, generator=randomness.parameter_generator(seed, name))  # noqa: E731
    assert torch.equal(draw(1, "wte"), draw(1, "wte"))
    assert not torch.equal(draw(1, "wte"), draw(2, "wte"))
    assert not torch.equal(draw(1, "wte"), draw(1, "head"))
