"""Exact evaluation against simulation, series and cases worked by hand."""

import numpy as np
import pytest
from hypothesis import given

from conftest import cases
from mnm.tabular import TabularMDP, deterministic_policy, evaluate_policy, evaluation, random_mdp
from mnm.tabular.evaluation import can_reach, chain, newton_fixed_point, occupancy, return_variance, solve_linear
from mnm.tabular.grids import random_grid
from mnm.tabular.mdp import uniform_policy
from mnm.tabular.random_mdps import random_policy


@given(cases())
def test_values_are_the_limit_of_the_series(case):
    mdp = case.mdp
    transitions = np.einsum("sa,sat->st", case.policy, mdp.dynamics.to_dense())
    rewards = (case.policy * mdp.expected_rewards).sum(axis=1)
    exact = np.linalg.solve(np.eye(mdp.num_states) - mdp.discount * transitions, rewards)
    assert evaluate_policy(mdp, case.policy) == pytest.approx(exact, rel=1e-10)


@given(cases())
def test_occupancy_is_a_distribution_whose_average_reward_is_the_return(case):
    mdp = case.mdp
    shares = occupancy(mdp, case.policy)
    assert shares.sum() == pytest.approx(1.0)
    expected = mdp.start @ evaluate_policy(mdp, case.policy)
    assert (shares * mdp.expected_rewards).sum() / (1 - mdp.discount) == pytest.approx(expected, rel=1e-9)


def test_occupancy_in_a_model():
    mdp = random_mdp(4, 2, seed=0)
    policy = random_policy(mdp, seed=1)
    model = mdp.dynamics.with_probs(np.roll(mdp.dynamics.probs, 1, axis=-1))
    states, total = mdp.start, np.zeros((4, 2))
    for time in range(500):
        pairs = states[:, None] * policy
        total += (1 - mdp.discount) * mdp.discount**time * pairs
        states = np.einsum("sa,sat->t", pairs, model.to_dense())
    assert occupancy(mdp, policy, model) == pytest.approx(total)


def test_variance_of_a_coin_flip():
    mdp = TabularMDP.from_dense([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [0.0, 0.0, 2.0], 0.5)
    assert return_variance(mdp, np.ones((3, 1))) == pytest.approx([1.0, 0.0, 0.0])


def test_variance_against_simulation():
    mdp = random_mdp(4, 2, seed=2, discount=0.8)
    policy = random_policy(mdp, seed=3)
    rng = np.random.default_rng(0)
    runs, states = 20_000, np.zeros(20_000, dtype=int)
    returns = np.zeros(runs)
    dense = mdp.dynamics.to_dense()
    for time in range(80):
        actions = (rng.random((runs, 1)) > policy.cumsum(axis=1)[states]).sum(axis=1)
        returns += mdp.discount**time * mdp.expected_rewards[states, actions]
        states = (rng.random((runs, 1)) > dense.cumsum(axis=2)[states, actions]).sum(axis=1)
    assert return_variance(mdp, policy)[0] == pytest.approx(returns.var(), rel=0.05)
    assert evaluate_policy(mdp, policy)[0] == pytest.approx(returns.mean(), abs=4 * returns.std() / np.sqrt(runs))


@pytest.mark.slow
def test_large_chains_are_solved_iteratively_to_the_same_values(monkeypatch):
    mdp = random_grid(25, seed=0).mdp
    policy = uniform_policy(mdp)
    direct, direct_shares = evaluate_policy(mdp, policy), occupancy(mdp, policy)
    monkeypatch.setattr(evaluation, "DIRECT_STATES", 10)
    assert evaluate_policy(mdp, policy) == pytest.approx(direct, rel=1e-10)
    monkeypatch.setattr(evaluation, "SMALL", 10)
    assert evaluate_policy(mdp, policy) == pytest.approx(direct, rel=1e-10)
    assert occupancy(mdp, policy) == pytest.approx(direct_shares, abs=1e-12)


def test_can_reach():
    # 0 -> 1 -> 2, 3 -> 3
    mdp = TabularMDP.from_dense(np.eye(4)[[1, 2, 2, 3]][:, None], np.ones(4), 0.9)
    edges = chain(mdp.dynamics, np.ones((4, 1)))
    assert can_reach(edges, np.array([False, False, True, False])).tolist() == [True, True, True, False]
    assert can_reach(edges, np.array([False, False, False, True])).tolist() == [False, False, False, True]
    assert not can_reach(edges, np.zeros(4, dtype=bool)).any()


def test_newton_finds_a_fixed_point_that_is_not_linear():
    # x = log(1 + exp(x) / 2): exp(x) = 2.
    mdp = TabularMDP.from_dense([[[1.0]]], [1.0], 0.9)

    def operator(values):
        image = np.log(1 + np.exp(values) / 2)
        slope = np.exp(values) / 2 / (1 + np.exp(values) / 2)
        return image, chain(mdp.dynamics, slope[:, None])

    assert newton_fixed_point(operator, np.array([5.0])) == pytest.approx([np.log(2.0)])


def test_solve_linear_on_a_deterministic_policy():
    mdp = random_grid(10, seed=1).mdp
    policy = deterministic_policy(np.zeros(mdp.num_states, dtype=int), 4)
    weights = mdp.discount * chain(mdp.dynamics, policy)
    values = solve_linear(weights, np.ones(mdp.num_states))
    assert values == pytest.approx(np.full(mdp.num_states, 100.0))
