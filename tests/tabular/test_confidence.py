"""Confidence sets hold as often as they say, and the smallest mean over one is what a general solver finds."""

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.special import gammaln

from mnm.tabular.confidence import kl_radius, log_kt, mean_radius, worst_means


def divergence(p, q):
    """KL(p || q) along the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log(p / q), 0.0).sum(axis=-1)


def test_kt_is_the_product_of_its_predictions():
    # (n_i + 1/2) / (n + k/2), one draw after the other: 0, 0, 1 of two outcomes.
    expected = (0.5 / 1) * (1.5 / 2) * (0.5 / 3)
    assert np.exp(log_kt(np.array([2.0, 1.0]), np.array(2.0))) == pytest.approx(expected, rel=1e-12)


def test_the_radius_by_hand():
    # Three draws, all alike, of at most two outcomes: R = log 2 + log 2 + 0 - 0.
    assert kl_radius(np.array([3.0, 0.0]), 2, 0.1) == pytest.approx((2 * np.log(2) + np.log(10)) / 3, rel=1e-12)
    assert kl_radius(np.zeros(2), 2, 0.1) == np.inf


@pytest.mark.parametrize("draws", [1, 4, 7])
@pytest.mark.parametrize("probs", [(0.2, 0.3, 0.5), (0.01, 0.01, 0.98), (0.6, 0.4, 0.0)])
def test_the_martingale_s_mean_is_at_most_1(draws, probs):
    """E[ exp(n KL(p_hat || p) - R) ] <= 1 for every n, by adding up all outcomes."""
    probs = np.array(probs)
    counts = np.array([c for c in itertools.product(range(draws + 1), repeat=3) if sum(c) == draws], dtype=float)
    counts = counts[(probs[None] > 0).repeat(len(counts), 0)[:, 2] | (counts[:, 2] == 0)]
    log_chance = gammaln(draws + 1) - gammaln(counts + 1).sum(axis=1)
    log_chance += np.where(counts > 0, counts * np.log(np.where(probs > 0, probs, 1.0)), 0.0).sum(axis=1)
    exponents = draws * (divergence(counts / draws, probs) - kl_radius(counts, 3, 1.0))
    assert np.exp(log_chance).sum() == pytest.approx(1.0)
    assert np.exp(log_chance + exponents).sum() <= 1.0 + 1e-12


@pytest.mark.slow
def test_the_set_holds_at_all_times_at_once():
    """How often p ever leaves the set while it is being drawn from, 2,000 times 300 draws: at most delta."""
    generator, failure, probs = np.random.default_rng(0), 0.2, np.array([0.05, 0.25, 0.7])
    drawn = generator.choice(3, size=(2_000, 300), p=probs)
    counts = (drawn[:, :, None] == np.arange(3)).cumsum(axis=1).astype(float)
    shares = counts / np.arange(1, 301)[:, None]
    ever = (divergence(shares, probs) > kl_radius(counts, 3, failure)).any(axis=1).mean()
    assert 0.001 < ever <= failure


def test_the_mean_of_random_rewards_holds_at_all_times_at_once():
    generator, failure = np.random.default_rng(1), 0.2
    drawn = generator.beta(0.3, 0.9, size=(2_000, 300))
    sums, number = drawn.cumsum(axis=1), np.arange(1.0, 301.0)
    means = sums / number
    apart = divergence(np.stack([means, 1 - means], -1), np.array([0.25, 0.75]))
    ever = (apart > mean_radius(sums, np.broadcast_to(number, sums.shape), failure)).any(axis=1).mean()
    assert ever <= failure


def test_few_successors_of_many_states_cost_little():
    """Against the usual bound, which pays for all states: Jonsson et al. 2020."""
    counts, states, failure = np.array([300.0, 500.0, 200.0]), 1_000, 1e-4
    usual = (np.log(1 / failure) + (states - 1) * np.log(np.e * (1 + 1_000 / (states - 1)))) / 1_000
    assert kl_radius(counts, states, failure) < usual / 30
    assert np.isclose(np.exp(gammaln(1_001) - gammaln(4) - gammaln(998)), comb(1_000, 3))


def solved(values, probs, radius, unseen):
    """The smallest mean by a general solver, over all outcomes; `unseen` is the value of one more, or None."""
    values = np.append(values, unseen) if unseen is not None else values
    unit = np.ptp(values)
    heights = (values - values.min()) / unit
    kept = len(probs)

    def apart(q):
        return radius - divergence(probs, np.maximum(q[:kept], 1e-300))

    best = np.inf
    for mass in (0.02, 0.5):
        first = np.append(probs * (1 - mass), mass) if unseen is not None else probs
        found = minimize(
            lambda q: q @ heights,
            first,
            bounds=[(1e-12, 1.0)] * len(values),
            constraints=[{"type": "eq", "fun": lambda q: q.sum() - 1}, {"type": "ineq", "fun": apart}],
            options={"maxiter": 1_000, "ftol": 1e-13},
        ).x
        if apart(found) > -1e-7 and abs(found.sum() - 1) < 1e-9:
            best = min(best, found @ heights)
    return values.min() + unit * best


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(2, 5), st.sampled_from([1e-3, 0.03, 0.4, 2.0]), st.booleans())
def test_the_smallest_mean_is_a_general_solver_s(seed, slots, radius, with_unseen):
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.ones(slots)) * 0.9 + 0.1 / slots
    values = 10 * generator.normal(size=slots)
    unseen = values.min() - 3 * generator.random() if with_unseen else None
    expected = solved(values, probs, radius, unseen)
    assume(np.isfinite(expected))  # the general solver does not always get there
    floor = np.array([values.min() if unseen is None else unseen])
    (mean,), (worst,) = worst_means(values[None], probs[None], np.array([radius]), floor)
    assert mean == pytest.approx(expected, abs=2e-3)
    assert mean <= expected + 1e-4
    # The distribution that comes with it is in the set, and has that mean.
    missing = 1 - worst.sum()
    assert divergence(probs, worst) <= radius + 1e-9
    assert missing >= -1e-12
    assert unseen is not None or missing < 1e-9
    assert worst @ values + missing * floor[0] == pytest.approx(mean, abs=1e-8)


def test_a_coin_s_smallest_mean_by_hand():
    """Two outcomes leave one equation: KL(coin 0.3 || coin m) = radius."""
    by_hand = brentq(lambda m: divergence(np.array([0.3, 0.7]), np.array([m, 1 - m])) - 0.1, 1e-9, 0.3)
    (mean,), _ = worst_means(np.array([[1.0, 0.0]]), np.array([[0.3, 0.7]]), np.array([0.1]), np.zeros(1))
    assert mean == pytest.approx(by_hand, rel=1e-9)


def test_an_unseen_successor_alone():
    """All draws alike: p can have put exp(-radius) on that outcome, and the rest on the worst."""
    (mean,), (worst,) = worst_means(np.array([[5.0]]), np.ones((1, 1)), np.array([0.2]), np.array([1.0]))
    assert mean == pytest.approx(1 + 4 * np.exp(-0.2), rel=1e-12)
    assert worst[0] == pytest.approx(np.exp(-0.2), rel=1e-9)


def test_what_is_certain_and_what_is_unknown():
    values, probs = np.array([[2.0, 7.0], [3.0, 3.0], [4.0, 9.0]]), np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    means, worst = worst_means(values, probs, np.array([np.inf, 0.1, 0.1]), np.array([-1.0, 3.0, 4.0]))
    assert means.tolist() == [-1.0, 3.0, 4.0]
    assert worst[0].sum() == 0.0  # all of it goes where it was never seen to go
    assert np.array_equal(worst[1:], probs[1:])


def test_extreme_sizes_give_no_warning():
    generator = np.random.default_rng(0)
    for unit in (1e-250, 1e-9, 1e9, 1e140):
        for radius in (1e-13, 1e-3, 50.0, 800.0):
            probs = generator.dirichlet(np.full(4, 0.1), 200)
            probs[probs < 1e-9] = 0.0
            probs /= probs.sum(axis=1, keepdims=True)
            values = unit * generator.random((200, 4))
            floor = np.where(probs > 0, values, np.inf).min(axis=1)
            means, _ = worst_means(values, probs, np.full(200, radius), floor)
            assert (means >= floor).all()
            assert (means <= (probs * values).sum(axis=1) + 1e-7 * unit).all()
