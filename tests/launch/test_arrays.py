"""Splitting cells into arrays of jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from looprepro.launch.arrays import split_into_arrays


def test_two_thousand_cells_and_a_limit_of_1001_make_two_arrays() -> None:
    arrays = split_into_arrays(range(2000), cells_per_job=1, max_array_size=1001)
    assert [len(array) for array in arrays] == [1001, 999]
    assert arrays[1][0] == [1001]


def test_forty_five_cells_and_a_limit_of_eleven_make_five_arrays() -> None:
    assert [len(array) for array in split_into_arrays(range(45), cells_per_job=1, max_array_size=11)] == [11, 11, 11, 11, 1]


def test_cells_are_packed_in_order_and_the_last_job_takes_the_rest() -> None:
    assert split_into_arrays("abcdefg", cells_per_job=3, max_array_size=2) == [[["a", "b", "c"], ["d", "e", "f"]], [["g"]]]


def test_no_cells_make_no_array() -> None:
    assert split_into_arrays([], cells_per_job=4, max_array_size=1001) == []


@pytest.mark.parametrize("limits", [{"cells_per_job": 0, "max_array_size": 1}, {"cells_per_job": 1, "max_array_size": 0}])
def test_a_limit_of_nothing_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        split_into_arrays([1], **limits)


@given(st.integers(0, 400), st.integers(1, 9), st.integers(1, 40))
def test_every_cell_is_in_one_job_and_no_index_reaches_the_limit(count: int, packed: int, limit: int) -> None:
    arrays = split_into_arrays(range(count), cells_per_job=packed, max_array_size=limit)
    assert [cell for array in arrays for job in array for cell in job] == list(range(count))
    assert all(1 <= len(array) <= limit for array in arrays)
    assert all(1 <= len(job) <= packed for array in arrays for job in array)
