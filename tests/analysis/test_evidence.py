"""Evidence agrees with SciPy, and a bootstrap never claims more than the signs of its seeds can say."""

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


def test_fewer_than_six_pairs_are_students_test_of_their_differences() -> None:
    found = paired([A, B], [1.0, -1.0])
    assert found is not None
    assert found.statistic == "paired Student"
    theirs = stats.ttest_rel(list(A.values())[:4], list(B.values()))
    assert 2 * found.p_above(0.0) == pytest.approx(theirs.pvalue)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    six = paired([dict(enumerate([0.1, 0.2, 0.1, 0.3, 0.2, 0.1]))], [1.0])
    assert six is not None
    assert six.statistic == "paired bootstrap"
    assert paired([{0: 0.7, 1: 0.8}, {0: 0.7, 1: 0.8}], [1.0, -1.0]) is None, "no spread, no estimate of the error"


def test_the_bootstrap_is_seeded_and_close_to_scipys() -> None:
    differences = [0.01, 0.03, -0.01, 0.02, 0.0, 0.04, 0.05, -0.02, 0.01, 0.03]
    found, again = (paired([dict(enumerate(differences))], [1.0], seed=3) for _ in range(2))
    assert found is not None
    assert again is not None
    assert found.interval == again.interval
    theirs = stats.bootstrap((differences,), np.mean, n_resamples=10_000, method="percentile", rng=1).confidence_interval
    assert found.interval == pytest.approx((theirs.low, theirs.high), abs=5e-4)
    assert 0.0 < found.p_above(0.0) < 0.05 < found.p_below(0.0)


@pytest.mark.parametrize("n", [6, 8, 10])
def test_n_equal_signs_have_a_p_value_of_a_half_to_the_n(n: int) -> None:
    found = paired([{seed: 1.0 + 0.01 * seed for seed in range(n)}], [1.0])
    assert found is not None
    assert found.p_above(0.0) == 0.5**n
    assert found.p_below(0.0) == 1.0
