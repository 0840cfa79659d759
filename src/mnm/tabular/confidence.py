"""Confidence sets for probabilities from counts, and the smallest mean that they allow.

The set. n draws from an unknown distribution p on at most K outcomes have shown k of them n_1, ..., n_k times, and
p_hat = n_i / n. Whatever p is, and for all n at once,

    P( some n has  n KL(p_hat || p) > log(1/delta) + R(n_1, ..., n_k) )  <=  delta,
    R = log K + log binomial(K, k) + sum_i n_i log p_hat_i - log KT(n_1, ..., n_k),
    KT(n_1, ..., n_k) = Gamma(k/2) / Gamma(n + k/2)  prod_i Gamma(n_i + 1/2) / Gamma(1/2).

Proof. Let a distribution q be drawn like this: the number of its outcomes uniformly from 1 to K; which they are,
uniformly from those of p, filled up to K; their probabilities from Dirichlet(1/2, ..., 1/2). The mean over q of the
likelihood ratio prod_i (q_i / p_i)^n_i is a supermartingale that starts at 1 and is never negative, so by Ville's
inequality it ever exceeds 1/delta with probability at most delta. The q whose outcomes are exactly the k that were
seen contribute exp(n KL(p_hat || p) - R) to it, and the others are not negative. As it holds for all n at once, the
draws may come from somebody who decides by what he has seen whether to draw again.

The usual bound (Jonsson et al. 2020) is the same with Dirichlet(1, ..., 1) on all K outcomes, which costs about
(K-1) log(1 + n/(K-1)); this one costs (k-1)/2 log n + k log K, and few of many states follow a state.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, xlogy

from mnm.tabular.mdp import Floats

ROWS_AT_ONCE = 2**14
"""What is computed with stays in the processor's cache."""
SEARCH_STEPS = 16
"""For the best shift: the mean is flat around it, so what is left of its error is squared."""

SMALLEST_SHIFT = 1e-100
"""Its square must not underflow."""


def log_kt(counts: Floats, seen: Floats) -> Floats:
    """log of the integral of prod_i q_i^n_i over q ~ Dirichlet(1/2, ..., 1/2) on `seen` outcomes, of the last axis."""
    totals = counts.sum(axis=-1)
    used = gammaln(counts + 0.5) - gammaln(0.5)
    summed: Floats = gammaln(seen / 2) - gammaln(totals + seen / 2) + used.sum(axis=-1)
    return summed


def log_likelihood(counts: Floats) -> Floats:
    """sum_i n_i log(n_i / n), the largest log likelihood of the counts, along the last axis."""
    totals = counts.sum(axis=-1)
    likelihood: Floats = xlogy(counts, counts).sum(axis=-1) - xlogy(totals, totals)
    return likelihood


def kl_radius(counts: Floats, outcomes: int, failure: float) -> Floats:
    """( log(1/delta) + R(n_1, ..., n_k) ) / n: how far in KL(p_hat || p) the true p can be, along the last axis.

    counts: [..., slots] how often each outcome was seen. outcomes: K, the most that p can have. failure: delta.
    Infinite where nothing was drawn.
    """
    seen = (counts > 0).sum(axis=-1)
    which = np.log(outcomes) + gammaln(outcomes + 1) - gammaln(seen + 1) - gammaln(np.maximum(outcomes - seen, 0) + 1)
    totals = counts.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        regret = which + log_likelihood(counts) - log_kt(counts, np.maximum(seen, 1).astype(float))
        return np.where(totals > 0, (regret - np.log(failure)) / totals, np.inf)


def mean_radius(ones: Floats, draws: Floats, failure: float) -> Floats:
    """( log(1/delta) + sum_i n_i log(n_i / n) - log KT(n_1, n_2) ) / n for the mean of draws in [0, 1].

    n_1 = `ones` is the sum of the draws and n_2 = n - n_1: no distribution on [0, 1] has a larger moment generating
    function than the coin with its mean, so the coin's martingale, with sums for counts, is a supermartingale.
    Infinite where nothing was drawn.
    """
    counts = np.stack([ones, draws - ones], axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        regret = log_likelihood(counts) - log_kt(counts, np.asarray(2.0))
        return np.where(draws > 0, (regret - np.log(failure)) / draws, np.inf)


def worst_means(values: Floats, probs: Floats, radius: Floats, floor: Floats) -> tuple[Floats, Floats]:
    """min { p . V : KL(p_hat || p) <= beta } = max_{z >= 0} exp(-beta) prod_i (V_i - u + z)^p_hat_i + u - z.

    values: [rows, slots] V. probs: [rows, slots] p_hat; slots with probability 0 are padding. radius: [rows] beta.
    floor: [rows] u, the value of an outcome that p may have and p_hat has not, at most the smallest of V; or the
    smallest of V itself, if all possible outcomes have been seen. The smallest means, and the distributions that have
    them, p_i ~ p_hat_i / (V_i - u + z): what is missing there to 1 is the share of the outcome that was never seen.

    This is the Lagrange dual, concave in z, and any z gives a lower bound on the minimum: no error of the search can
    make a mean too large. Its derivative is exp(f(z) - beta) - 1 with f(z) = sum_i p_hat_i log(V_i - u + z) + log sum_i
    p_hat_i / (V_i - u + z); by Kantorovich's inequality f(z) <= log(1 + Y^2 / (4 z (z + Y))), Y = max V - u, which says
    how large z can be.
    """
    means, worst = np.empty(len(radius)), np.empty(probs.shape)
    for start in range(0, len(radius), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        means[part], worst[part] = _worst_means(values[part], probs[part], radius[part], floor[part])
    return means, worst


def _worst_means(values: Floats, probs: Floats, radius: Floats, floor: Floats) -> tuple[Floats, Floats]:
    heights = np.where(probs > 0, values - floor[:, None], 0.0)
    units = heights.max(axis=1)
    open_rows = (units > 0) & np.isfinite(radius)  # of the others the smallest mean is the floor
    means, worst = floor.copy(), probs.copy()
    if not open_rows.any():
        return means, worst
    radius, units = radius[open_rows], units[open_rows]
    # [slots, rows]: NumPy adds rows several times as fast as short columns.
    probs, heights = (np.ascontiguousarray(array[open_rows].T) for array in (probs, heights))
    heights = np.where(probs > 0, heights / units, 1.0)  # a padding slot counts nothing, whatever it is
    shifts = best_shifts(heights, probs, radius)
    shifted = heights + shifts
    multiplier = np.exp((probs * np.log(shifted)).sum(axis=0) - radius)
    means[open_rows] += units * np.maximum(multiplier - shifts, 0.0)  # no mean is below the smallest value
    shares = probs / shifted
    worst[open_rows] = (shares * np.where(shifts > 0, 1 / shares.sum(axis=0), multiplier)).T
    return means, worst


def best_shifts(heights: Floats, probs: Floats, radius: Floats) -> Floats:
    """The z >= 0 at which f(z) = beta, or 0 if f(0) is smaller: there the dual is largest.

    heights: [slots, rows] V - u, of which the largest in every row is 1.
    """
    low, high = np.zeros(len(radius)), (1 / np.sqrt(np.maximum(-np.expm1(-radius), 1e-16)) - 1) / 2
    shifts = high = np.maximum(high, SMALLEST_SHIFT)
    for _ in range(SEARCH_STEPS):
        shifted = heights + shifts
        shares = probs / shifted
        mean = shares.sum(axis=0)
        reached = np.maximum((probs * np.log(shifted)).sum(axis=0) + np.log(mean), 0.0)  # f(z)
        slope = mean - (shares / shifted).sum(axis=0) / mean  # f'(z)
        low, high = np.where(reached > radius, shifts, low), np.where(reached > radius, high, shifts)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Newton's method for 1 / sqrt(f) = 1 / sqrt(beta): for large z, f falls as 1 / z^2, and this is linear.
            newton = shifts + 2 * reached / slope * (1 - np.sqrt(reached / radius))
        between = np.maximum(np.sqrt(np.maximum(low, 1e-8 * high) * high), SMALLEST_SHIFT)
        shifts = np.where((newton > 0) & (newton >= low) & (newton <= high), newton, between)
    # At 0 itself the dual is minus infinity if an outcome of the smallest value was seen.
    return np.where((low > 0) | (heights.min(axis=0) == 0), shifts, 0.0)
