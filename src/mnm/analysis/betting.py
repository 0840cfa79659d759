"""Lower confidence bounds on the mean of independent draws in [0, 1], along the last axis.

The one that is used is betting's (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting"); Hoeffding's and the bootstrap's are there to compare with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LARGEST_STAKE = 0.9
"""Of the capital, on one draw."""
HALVINGS = 50
RESAMPLES = 1_000


def betting_lower_bound(draws: NDArray, failure: float, planned: int | None = None) -> NDArray:
    """sup { m : max_t K_t(m) >= 1/delta },  K_t(m) = prod_{i<=t} ( 1 + lambda_i (x_i - m) ).

    Whoever bets that the mean is above m, with a stake lambda_i >= 0 that he fixes before he sees x_i, has the capital
    K_t(m). If the mean is m, or smaller, it is a supermartingale that starts at 1, and ever reaches 1/delta with
    probability at most delta (Ville). So the bound holds for all numbers of draws at once: one may look after each, and
    stop. draws: [..., n] x. failure: delta. The stakes are the paper's predictable plug-in, lambda_i = min( sqrt(2
    log(1/delta) / (N s_{i-1}^2)), LARGEST_STAKE / m ), with s^2 the variance so far; N, `planned`, is the number of
    draws at which the bound shall be sharpest, by default as many as there are. Every factor falls as m grows, so
    halving an interval finds the supremum, and its lower end is returned.
    """
    number = np.arange(1, draws.shape[-1] + 1)
    means = (0.5 + np.cumsum(draws, axis=-1)) / (number + 1)
    variances = (0.25 + np.cumsum((draws - means) ** 2, axis=-1)) / (number + 1)
    before = np.concatenate([np.full((*draws.shape[:-1], 1), 0.25), variances[..., :-1]], axis=-1)
    stakes = np.sqrt(2 * np.log(1 / failure) / ((planned or draws.shape[-1]) * before))
    low, high = np.zeros(draws.shape[:-1]), np.ones(draws.shape[:-1])
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mean = middle[..., None]
        log_capital = np.cumsum(np.log1p(np.minimum(stakes, LARGEST_STAKE / mean) * (draws - mean)), axis=-1)
        rejected = log_capital.max(axis=-1) >= np.log(1 / failure)
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return low


def hoeffding_lower_bound(draws: NDArray, failure: float) -> NDArray:
    """mean - sqrt( log(1/delta) / (2 n) ): for one n that is fixed beforehand."""
    return np.maximum(draws.mean(axis=-1) - np.sqrt(np.log(1 / failure) / (2 * draws.shape[-1])), 0.0)


def bootstrap_lower_bound(draws: NDArray, failure: float, *, seed: int = 0) -> NDArray:
    """The delta quantile of the means of RESAMPLES samples of n, drawn from the draws. No guarantee."""
    number = draws.shape[-1]
    chosen = np.random.default_rng(seed).multinomial(number, np.full(number, 1 / number), size=RESAMPLES)
    return np.quantile(draws @ chosen.T / number, failure, axis=-1)
