"""Evidence agrees with SciPy, and errs as often as its level says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from looprepro.analysis.evidence import independent, paired

A = dict(enumerate([0.71, 0.74, 0.69, 0.78, 0.73]))
B = dict(enumerate([0.61, 0.70, 0.59, 0.72]))
numbers = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


def test_two_samples_are_welchs_test_and_interval_of_scipy() -> None:
    found = independent([A, B], [1.0, -1.0])
    assert found is not None
    theirs = stats.ttest_ind(list(A.values()), list(B.values()), equal_var=False)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert 2 * found.p_above(0.0) == pytest.approx(theirs.pvalue)
    assert found.p_above(0.0) + found.p_below(0.0) == pytest.approx(1.0)


@given(numbers, numbers)
def test_welch_agrees_with_scipy_on_any_samples_with_spread(a: list[float], b: list[float]) -> None:
    if np.std(a) < 1e-3 or np.std(b) < 1e-3:
        return
    found = independent([dict(enumerate(a)), dict(enumerate(b))], [1.0, -1.0])
    assert found is not None
    theirs = stats.ttest_ind(a, b, equal_var=False)
    assert 2 * min(found.p_above(0.0), found.p_below(0.0)) == pytest.approx(theirs.pvalue, rel=1e-6, abs=1e-12)


def test_one_sample_is_students_test_of_scipy() -> None:
    found = independent([A], [1.0])
    assert found is not None
    assert found.p_above(0.7) == pytest.approx(stats.ttest_1samp(list(A.values()), 0.7, alternative="greater").pvalue)


def test_the_weighted_sum_has_the_variance_of_independent_means() -> None:
    found = independent([A, B, A], [1.0, -2.0, 0.5])
    assert found is not None
    sem_a, sem_b = (float(stats.sem(list(sample.values()))) for sample in (A, B))
    assert found.error**2 == pytest.approx(sem_a**2 + 4 * sem_b**2 + sem_a**2 / 4)
    assert found.effect == pytest.approx(1.5 * 0.73 - 2 * 0.655)


def test_one_seed_or_no_spread_is_no_evidence() -> None:
    assert independent([A, {0: 0.5}], [1.0, -1.0]) is None
    assert independent([{0: 0.5, 1: 0.5}], [1.0]) is None
    assert paired([A, {7: 0.1}], [1.0, -1.0]) is None


def test_pairs_use_common_seeds_only() -> None:
    found = paired([A, B], [1.0, -1.0])
    assert found is not None
    assert found.effect == pytest.approx((0.10 + 0.04 + 0.10 + 0.06) / 4)


def test_pairs_are_students_test_of_their_differences() -> None:
    found = paired([A, B], [1.0, -1.0])
    assert found is not None
    assert found.statistic == "paired Student"
    theirs = stats.ttest_rel(list(A.values())[:4], list(B.values()))
    assert 2 * found.p_above(0.0) == pytest.approx(theirs.pvalue)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert paired([{0: 0.7, 1: 0.8}, {0: 0.7, 1: 0.8}], [1.0, -1.0]) is None, "no spread, no estimate of the error"


@pytest.mark.parametrize("n", [3, 6, 10])
def test_pairs_without_an_effect_are_called_one_in_a_twentieth_of_cases(n: int) -> None:
    draws = np.random.default_rng(n).normal(size=(2000, n))
    found = [paired([dict(enumerate(draw))], [1.0]) for draw in draws.tolist()]
    called = sum(2 * min(one.p_above(0.0), one.p_below(0.0)) < 0.05 for one in found if one)
    assert called / len(draws) == pytest.approx(0.05, abs=0.015)
