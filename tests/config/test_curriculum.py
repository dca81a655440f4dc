"""The staged curriculum: lengths, slices, and the odd cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from looprepro.config.curriculum import Curriculum


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(2, (2,)), (3, (2, 3)), (4, (2, 4)), (32, (2, 4, 8, 16, 32)), (33, (2, 4, 8, 16, 32, 33)), (24, (2, 4, 8, 16, 24))],
)
def test_lengths_double_and_end_at_n(longest, lengths):
    assert Curriculum.doubling(longest, 1000).lengths == lengths


def test_the_papers_slices_are_equal():
    curriculum = Curriculum.doubling(32, 100_000)
    edges = [0, 19_999, 20_000, 39_999, 40_000, 59_999, 60_000, 79_999, 80_000, 99_999]
    assert [curriculum.length(step) for step in edges] == [2, 2, 4, 4, 8, 8, 16, 16, 32, 32]
    assert curriculum.first_full_step() == 80_000


def test_no_curriculum_trains_n_throughout():
    curriculum = Curriculum.none(32, 10)
    assert [curriculum.length(step) for step in range(10)] == [32] * 10
    assert curriculum.first_full_step() == 0


def test_fewer_steps_than_lengths_drop_the_shortest_and_still_end_at_n():
    assert [Curriculum.doubling(32, 3).length(step) for step in range(3)] == [8, 16, 32]
    assert Curriculum.doubling(32, 1).length(0) == 32


@given(longest=st.integers(2, 200), steps=st.integers(1, 300))
def test_slices_differ_by_at_most_one_step_and_never_shrink_the_length(longest, steps):
    curriculum = Curriculum.doubling(longest, steps)
    lengths = [curriculum.length(step) for step in range(steps)]
    assert lengths == sorted(lengths)
    assert lengths[-1] == longest
    counts = [lengths.count(length) for length in curriculum.lengths]
    assert min(counts) >= 1
    assert max(counts) - min(counts) <= 1
    assert curriculum.first_full_step() == lengths.index(longest)
    assert curriculum.length(steps + 5) == longest
