"""The statistics over seeds: against SciPy on synthetic scores, and numbers worked by hand."""

from math import comb, isnan, nan

import numpy as np
import pytest
from scipy import stats

from mnm.analysis import statistics
from mnm.analysis.comparison import COVERAGE
from mnm.analysis.statistics import (
    bootstrap_interval,
    holm,
    interquartile_mean,
    is_exact,
    is_significant,
    mean_probability_of_improvement,
    permutation_p_value,
    probability_of_improvement,
    seeds_to_tell,
    smallest_possible_p,
)


def normal(seed, size, mean=0.0):
    return np.random.default_rng(seed).normal(mean, 1.0, size)


@pytest.mark.parametrize("number", range(1, 14))
def test_the_interquartile_mean_is_scipy_s_trimmed_mean(number):
    scores = normal(number, (6, number))
    np.testing.assert_allclose(interquartile_mean(scores), stats.trim_mean(scores, 0.25, axis=-1), rtol=1e-12)


def test_the_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 3.0, -50.0])) == 2.0
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 6.0, -50.0])) == 3.0
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0  # three lose none


def test_the_bootstrap_interval_is_close_to_scipy_s():
    scores = np.random.default_rng(0).gamma(2.0, size=12)
    found = bootstrap_interval([scores], interquartile_mean)
    expected = stats.bootstrap(
        (scores,),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=5000,
        method="percentile",
        random_state=1,
    )
    width = expected.confidence_interval.high - expected.confidence_interval.low
    np.testing.assert_allclose(found, expected.confidence_interval, atol=0.04 * width)


def test_the_interval_of_two_scores_by_hand():
    """Resampled, {0, 1} has the mean 0 and 1 a quarter of the time each: both tails are longer than 2.5 %."""
    assert bootstrap_interval([np.array([0.0, 1.0])], interquartile_mean) == (0.0, 1.0)


@pytest.mark.parametrize("number", COVERAGE)
def test_how_often_intervals_of_few_seeds_hold_the_truth(number, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    samples = normal(number, (1500, number))
    intervals = [bootstrap_interval([scores], interquartile_mean, seed=i) for i, scores in enumerate(samples)]
    held = 100 * np.mean([low <= 0 <= high for low, high in intervals])
    assert held == pytest.approx(COVERAGE[number], abs=3)


def test_seeds_are_drawn_within_their_stratum():
    """Two agents far apart: a resample that mixed them could not keep their distance."""
    strata = [np.array([0.0, 1.0, 2.0]), np.array([100.0, 101.0])]
    low, high = bootstrap_interval(strata, lambda x, y: y.min(axis=1) - x.max(axis=1))
    assert low >= 98
    assert high <= 101


def test_strata_are_drawn_independently():
    """The same seeds drawn from both would make the difference of equal strata exactly 0."""
    scores = normal(3, 8)
    low, high = bootstrap_interval([scores, scores], lambda x, y: x.mean(1) - y.mean(1))
    assert low < -0.1
    assert high > 0.1


def test_an_interval_is_the_same_each_time():
    scores = normal(4, 7)
    assert bootstrap_interval([scores], interquartile_mean) == bootstrap_interval([scores], interquartile_mean)
    assert bootstrap_interval([scores], interquartile_mean, seed=1) != bootstrap_interval([scores], interquartile_mean)


@pytest.mark.parametrize("seed", range(5))
def test_the_probability_of_improvement_is_mann_and_whitney_s_u(seed):
    scores, baseline = np.round(normal(seed, 6, 0.5), 0), np.round(normal(seed + 9, 9), 0)
    assert np.isin(scores, baseline).any()  # ties
    u = stats.mannwhitneyu(scores, baseline).statistic
    assert probability_of_improvement(scores, baseline) == pytest.approx(u / (6 * 9))


def test_the_probability_of_improvement_by_hand():
    first, second = np.array([1.0, 3.0]), np.array([0.0, 2.0, 3.0])
    assert probability_of_improvement(first, second) == pytest.approx((1 + 0 + 0 + 1 + 1 + 0.5) / 6)
    assert mean_probability_of_improvement(first, second, np.array([9.0]), np.array([1.0])) == pytest.approx(
        (3.5 / 6 + 1) / 2
    )


@pytest.mark.parametrize(("seeds", "baseline_seeds"), [(2, 4), (3, 3), (5, 5), (4, 7)])
def test_the_exact_p_value_is_scipy_s(seeds, baseline_seeds):
    scores, baseline = normal(seeds, seeds, 0.8), normal(seeds + 50, baseline_seeds)
    expected = stats.permutation_test(
        (scores, baseline),
        lambda x, y, axis: x.mean(axis=axis) - y.mean(axis=axis),
        alternative="greater",
        n_resamples=np.inf,
    )
    assert permutation_p_value(scores, baseline) == pytest.approx(expected.pvalue, abs=1e-12)


def test_ties_count_in_spite_of_rounding():
    """{0.1, 0.2, 0.3} against itself: 14 of the 20 sums of three of its numbers twice are at least 0.6."""
    scores = np.array([0.1, 0.2, 0.3])
    assert permutation_p_value(scores, scores[::-1]) == 14 / 20


def test_a_drawn_p_value_is_close_to_the_exact_one(monkeypatch):
    scores, baseline = normal(1, 6, 0.7), normal(2, 7)
    exact = permutation_p_value(scores, baseline)
    assert 0.01 < exact < 0.5
    monkeypatch.setattr(statistics, "is_exact", lambda *_: False)
    drawn = permutation_p_value(scores, baseline)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * (exact / 20_000) ** 0.5)


def test_a_drawn_p_value_is_never_0():
    assert not is_exact(30, 30)
    assert permutation_p_value(normal(0, 30, 50.0), normal(1, 30)) == 1 / 20_001


@pytest.mark.parametrize(("seeds", "exact"), [(8, True), (9, False)])
def test_up_to_20_000_arrangements_are_all_tried(seeds, exact):
    assert comb(2 * seeds, seeds) == {8: 12_870, 9: 48_620}[seeds]
    assert is_exact(seeds, seeds) is exact


@pytest.mark.parametrize(("seeds", "baseline_seeds", "expected"), [(3, 3, 0.05), (4, 4, 1 / 70), (1, 5, 1 / 6)])
def test_the_smallest_possible_p_is_that_of_complete_separation(seeds, baseline_seeds, expected):
    assert smallest_possible_p(seeds, baseline_seeds) == expected
    assert permutation_p_value(normal(0, seeds, 50.0), normal(1, baseline_seeds)) == pytest.approx(expected)


def test_three_against_three_can_just_tell():
    assert is_significant(smallest_possible_p(3, 3))
    assert not is_significant(smallest_possible_p(2, 4))
    assert not is_significant(nan)


def test_holm_s_correction_by_hand():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.02, nan, 0.9])), [0.04, nan, 0.9])  # a nan is not counted
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1.0, 1.0])
    assert holm(np.array([])).shape == (0,)


def test_holm_s_correction_errs_as_rarely_as_it_says():
    """Five tests of nothing: without the correction one of them errs in about 20 % of all cases."""
    p_values = np.random.default_rng(0).uniform(size=(4000, 5))
    errors = np.mean([holm(row).min() <= 0.05 for row in p_values])
    assert 0.035 <= errors <= 0.055
    assert np.mean(p_values.min(axis=1) <= 0.05) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("difference", "expected"), [(1.0, 14), (2.0, 4), (5.0, 3)])
def test_so_many_seeds_tell_so_often(difference, expected):
    """Means and spreads are exactly those asked for; then permutation tests of normal scores that have them."""
    scores = np.array([-1.0, 0.0, 1.0])
    number = seeds_to_tell(scores + difference, scores)
    assert number == expected
    generator = np.random.default_rng(0)
    draws = [(generator.normal(difference, 1.0, number), generator.normal(0.0, 1.0, number)) for _ in range(400)]
    told = np.mean([is_significant(permutation_p_value(*drawn)) for drawn in draws])
    assert told >= 0.8 - 2 * (0.8 * 0.2 / 400) ** 0.5


def test_no_number_of_seeds_tells_what_is_not_there():
    scores = np.array([-1.0, 0.0, 1.0])
    assert seeds_to_tell(scores, scores) is None
    assert seeds_to_tell(scores, scores + 1.0) is None
    assert seeds_to_tell(scores + 0.01, scores) is None  # more than a thousand
    assert seeds_to_tell(np.array([1.0]), scores) is None
    assert seeds_to_tell(np.array([1.0, nan]), scores) is None
    assert seeds_to_tell(np.full(3, 2.0), np.full(3, 1.0)) == 3  # no spread: the fewest that can tell


def test_all_equal():
    equal = np.full(5, 0.1)
    assert interquartile_mean(equal) == pytest.approx(0.1)
    assert bootstrap_interval([equal], interquartile_mean) == pytest.approx((0.1, 0.1))
    assert probability_of_improvement(equal, equal) == 0.5
    assert permutation_p_value(equal, equal) == 1.0


def test_one_seed():
    one, three = np.array([2.0]), np.array([1.0, 2.0, 3.0])
    assert interquartile_mean(one) == 2.0
    assert all(isnan(bound) for bound in bootstrap_interval([one], interquartile_mean))
    assert all(isnan(bound) for bound in bootstrap_interval([three, one], mean_probability_of_improvement))
    assert probability_of_improvement(one, three) == 0.5
    assert permutation_p_value(one, three) == 0.75


def test_a_nan_is_not_left_out():
    """Trimming would take it for the highest score, comparisons for a lost one."""
    scores, fine = np.array([1.0, 2.0, 3.0, nan]), np.array([1.0, 2.0, 0.5, 4.0])
    np.testing.assert_array_equal(interquartile_mean(np.stack([scores, fine])), [nan, 1.5])
    for pair in ((scores, fine), (fine, scores)):
        assert isnan(probability_of_improvement(*pair))
        assert isnan(permutation_p_value(*pair))
