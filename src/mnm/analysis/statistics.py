"""What can be said about agents from a few seeds: robust means, their intervals, and comparisons of two agents.

Scores are arrays with one entry per seed. A score that is nan makes the result nan: it is never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from math import comb, nan

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
RESAMPLES = 5_000
"""Of the bootstrap."""
ARRANGEMENTS = 20_000
"""Up to so many arrangements of the seeds are all tried; of more, so many are drawn."""
SIGNIFICANT = 0.05
"""A difference is one if its p is at most this."""
POWER = 0.8
"""How often a number of seeds shall tell a difference that is there."""
MOST_SEEDS = 1_000


def interquartile_mean(scores: NDArray) -> NDArray:
    """The mean of what is left without the lowest and the highest quarter, along the last axis.

    A quarter is rounded down: up to three scores lose none, and this is their mean.
    """
    number = scores.shape[-1]
    cut = number // 4
    middle = np.sort(scores, axis=-1)[..., cut : number - cut].mean(axis=-1)
    return np.where(np.isnan(scores).any(axis=-1), nan, middle)  # sorting puts a nan among the highest


def bootstrap_interval(
    strata: Sequence[NDArray], statistic: Callable[..., NDArray], *, seed: int = 0
) -> tuple[float, float]:
    """The stratified percentile bootstrap's interval of statistic(*strata), at CONFIDENCE.

    A stratum holds the scores of one agent on one task; its seeds are drawn anew among themselves. The statistic gets
    arrays [resamples, seeds]. One seed alone says nothing about its spread: the interval is then (nan, nan).
    """
    if min(len(scores) for scores in strata) < 2:
        return nan, nan
    generator = np.random.default_rng(seed)
    drawn = [scores[generator.integers(0, len(scores), (RESAMPLES, len(scores)))] for scores in strata]
    low, high = np.quantile(statistic(*drawn), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def probability_of_improvement(scores: NDArray, baseline: NDArray) -> NDArray:
    """P(X > Y) + P(X = Y) / 2 over all pairs of a score and a baseline's, along the last axes.

    It is Mann and Whitney's U over the number of pairs, and needs no unit: it can be averaged over tasks.
    """
    pairs = scores[..., :, None] - baseline[..., None, :]
    return ((1 + np.sign(pairs)) / 2).mean(axis=(-2, -1))


def mean_probability_of_improvement(*strata: NDArray) -> NDArray:
    """The mean over tasks of the probability of improvement; strata are scores, baseline, scores, baseline, ..."""
    tasks = zip(strata[::2], strata[1::2], strict=True)
    return np.mean([probability_of_improvement(*task) for task in tasks], axis=0)


def permutation_p_value(scores: NDArray, baseline: NDArray, *, seed: int = 0) -> float:
    """One-sided permutation test: how often the mean exceeds the baseline's by as much when the seeds are shuffled.

    Exact up to ARRANGEMENTS; beyond, the arrangement that was observed is counted among those drawn, so that p is
    never 0 and the test stays valid.
    """
    pooled = np.concatenate([scores, baseline])
    if not np.isfinite(pooled).all():
        return nan
    # The sum of the first group orders the arrangements as the difference of means does.
    rounding = 1e-12 * np.abs(pooled).sum()
    observed = scores.sum() - rounding
    if is_exact(len(scores), len(baseline)):
        chosen = chain.from_iterable(combinations(range(len(pooled)), len(scores)))
        rows = np.fromiter(chosen, dtype=int).reshape(-1, len(scores))
        return float(np.mean(pooled[rows].sum(axis=1) >= observed))
    shuffled = np.random.default_rng(seed).permuted(np.tile(pooled, (ARRANGEMENTS, 1)), axis=1)
    as_much = np.count_nonzero(shuffled[:, : len(scores)].sum(axis=1) >= observed)
    return float((1 + as_much) / (1 + ARRANGEMENTS))


def is_significant(p: float) -> bool:
    """Whether a p-value is small enough to speak of a difference; nan is not."""
    return p <= SIGNIFICANT


def is_exact(seeds: int, baseline_seeds: int) -> bool:
    """Whether the permutation test tries all arrangements."""
    return comb(seeds + baseline_seeds, seeds) <= ARRANGEMENTS


def smallest_possible_p(seeds: int, baseline_seeds: int) -> float:
    """The exact test's p when every score is above every baseline's: 1 over the number of arrangements."""
    return 1 / comb(seeds + baseline_seeds, seeds)


def holm(p_values: NDArray) -> NDArray:
    """Holm's adjusted p of each of several tests: the chance that any of them errs stays below the level.

    The smallest is multiplied by their number, the next by one less, and so on; none falls below the one before it. A
    nan is no test: it stays, and is not counted.
    """
    adjusted = np.full(len(p_values), nan)
    order = [index for index in np.argsort(p_values, kind="stable") if not np.isnan(p_values[index])]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p_values[order]))
    return adjusted


def seeds_to_tell(scores: NDArray, baseline: NDArray) -> int | None:
    """How many seeds of each agent tell with probability POWER that the scores are above the baseline's.

    If means and spreads are those seen, by a one-sided t-test at SIGNIFICANT: the permutation test's power is about
    that, from the fewest seeds on with which it can tell at all. None if the scores' mean is not above, if a spread
    cannot be known, or if it takes more than MOST_SEEDS.
    """
    from scipy.special import nctdtr, stdtrit  # not at the top: commands that need no power start sooner

    if min(len(scores), len(baseline)) < 2 or not np.isfinite([*scores, *baseline]).all():
        return None
    difference = float(scores.mean() - baseline.mean())
    if difference <= 0:
        return None
    variance = float(scores.var(ddof=1) + baseline.var(ddof=1)) / 2
    for number in range(2, MOST_SEEDS + 1):
        if not is_significant(smallest_possible_p(number, number)):
            continue
        freedom = 2 * number - 2
        effect = difference * (number / (2 * variance)) ** 0.5 if variance > 0 else np.inf
        # nctdtr is slow and loses its digits far out, where the power is 1 anyway.
        if effect > 10 or 1 - nctdtr(freedom, effect, stdtrit(freedom, 1 - SIGNIFICANT)) >= POWER:
            return number
    return None


def spread(scores: NDArray, digits: int = 2) -> str:
    """'median [lowest, highest]' over the seeds."""
    low, middle, high = np.min(scores), np.median(scores), np.max(scores)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
