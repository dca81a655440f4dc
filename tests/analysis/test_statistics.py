"""Means, errors and intervals over seeds: worked by hand where that is possible, compared with SciPy elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from looprepro.analysis.statistics import holm, mean, standard_error, summarise, t_interval

DIAGONAL = [0.681, 0.703, 0.655, 0.712, 0.690, 0.674, 0.731, 0.668, 0.699, 0.707]
CONFORMAL = [0.901, 0.884, 0.879, 0.912, 0.893]
numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


def test_standard_error_of_one_two_three_is_one_over_root_three() -> None:
    assert standard_error([1.0, 2.0, 3.0]) == pytest.approx(1 / math.sqrt(3), rel=1e-15)


def test_one_value_has_no_standard_error_and_no_interval() -> None:
    summary = summarise([0.7])
    assert (summary.n, summary.mean, summary.se, summary.low, summary.high) == (1, 0.7, None, None, None)


def test_no_value_has_no_mean() -> None:
    assert summarise([]).mean is None
    with pytest.raises(ValueError, match="no values"):
        mean([])


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="diverged"):
        summarise([0.5, math.nan])


@pytest.mark.parametrize("values", [DIAGONAL, CONFORMAL, [0.1, 0.2]])
def test_error_and_interval_agree_with_scipy(values: list[float]) -> None:
    assert standard_error(values) == pytest.approx(stats.sem(values, ddof=1), rel=1e-12)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert t_interval(values) == pytest.approx((low, high), rel=1e-10)


def test_holm_on_a_textbook_family() -> None:
    # 0.01*4 = 0.04; 0.02*3 = 0.06; 0.03*2 = 0.06; 0.04*1 = 0.04 but never below its predecessor
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(numbers)
def test_the_error_does_not_depend_on_the_order_of_the_seeds(values: list[float]) -> None:
    assert standard_error(values) == pytest.approx(standard_error(values[::-1]), rel=1e-12, abs=1e-300)
