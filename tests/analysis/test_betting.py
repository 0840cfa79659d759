"""Lower bounds on a mean: the betting bound holds at all times at once, and what few episodes do to the bootstrap."""

import numpy as np
import pytest
from scipy.stats import binomtest

from mnm.analysis.betting import betting_lower_bound, bootstrap_lower_bound, hoeffding_lower_bound

SETS = 1_000
DRAWS = {
    "mostly succeeds": (lambda g, shape: (g.random(shape) < 0.9).astype(float), 0.9),
    "mostly fails": (lambda g, shape: (g.random(shape) < 0.1).astype(float), 0.1),
    "narrow": (lambda g, shape: g.beta(80, 20, shape), 0.8),
    "two heaps": (lambda g, shape: np.where(g.random(shape) < 0.3, g.beta(2, 20, shape), 0.9), 0.3 * 2 / 22 + 0.63),
}


def naive_capital(draws, mean, failure, planned):
    """The capital of who bets that the mean is above `mean`, one draw after the other."""
    capital, seen, total, squares = 1.0, [], 0.5, 0.25
    for number, draw in enumerate(draws, 1):
        variance = squares / number if number > 1 else 0.25
        stake = min(np.sqrt(2 * np.log(1 / failure) / (planned * variance)), 0.9 / mean)
        capital *= 1 + stake * (draw - mean)
        seen.append(capital)
        total += draw
        squares += (draw - total / (number + 1)) ** 2
    return max(seen)


def test_the_bound_is_where_the_capital_has_grown_enough():
    draws = np.random.default_rng(0).random(30)
    bound = float(betting_lower_bound(draws, 0.05, 40))
    assert naive_capital(draws, bound - 1e-6, 0.05, 40) >= 20
    assert naive_capital(draws, bound + 1e-6, 0.05, 40) < 20


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("name", DRAWS)
def test_it_exceeds_the_mean_as_rarely_as_it_says(name, confidence):
    """1,000 data sets of 60 draws, looked at after every draw: the bound only grows, so the last look sees all."""
    draw, mean = DRAWS[name]
    bounds = betting_lower_bound(draw(np.random.default_rng(0), (SETS, 60)), 1 - confidence)
    assert binomtest(int((bounds > mean).sum()), SETS).proportion_ci(0.95).low <= 1 - confidence


def test_looking_after_every_draw_is_the_same_as_at_the_end():
    draws = np.random.default_rng(1).random(25)
    looks = [float(betting_lower_bound(draws[:number], 0.1, 25)) for number in range(1, 26)]
    assert looks == sorted(looks)


def test_few_episodes_make_the_bootstrap_promise_too_much():
    """Ten episodes that fail one time in ten: the bootstrap's 95 % bound is above the mean a third of the time."""
    draws = DRAWS["mostly succeeds"][0](np.random.default_rng(0), (SETS, 10))
    missed = {
        "betting": betting_lower_bound(draws, 0.05) > 0.9,
        "Hoeffding": hoeffding_lower_bound(draws, 0.05) > 0.9,
        "bootstrap": bootstrap_lower_bound(draws, 0.05) > 0.9,
    }
    rates = {name: float(each.mean()) for name, each in missed.items()}
    assert rates["betting"] <= 0.05
    assert rates["Hoeffding"] <= 0.05
    assert rates["bootstrap"] > 0.25


def test_it_is_sharper_than_hoeffding_where_returns_vary_little():
    draws = DRAWS["narrow"][0](np.random.default_rng(0), (200, 50))
    assert (betting_lower_bound(draws, 0.05) > hoeffding_lower_bound(draws, 0.05) + 0.05).all()


def test_it_comes_to_the_mean():
    draws = np.random.default_rng(0).beta(3, 2, 20_000)
    assert 0.595 < float(betting_lower_bound(draws, 0.05)) < 0.6


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_draws_at_the_ends_of_the_range(value):
    bound = float(betting_lower_bound(np.full(50, value), 0.05))
    assert 0.85 * value <= bound <= value
