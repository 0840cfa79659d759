"""Solvers: true error bounds, equal answers, ties that do not cycle, and large grids."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import cases
from mnm.tabular import (
    ConvergenceError,
    MDPError,
    TabularMDP,
    evaluate_policy,
    log_expected_return,
    policy_iteration,
    random_grid,
    random_mdp,
    solve,
    solvers,
    value_iteration,
)
from mnm.tabular.bounds import augmented_rewards, average, sharper_bound
from mnm.tabular.grids import Grid
from mnm.tabular.mdp import deterministic_policy
from mnm.tabular.mnm import joint_iteration, joint_iteration_tight, solve_mnm, solve_tight
from mnm.tabular.paper_tasks import stochastic_gridworld, three_states
from mnm.tabular.solvers import macqueen_bounds, path_lengths, solve_by_sweeps


def sweeps(mdp, tolerance=1e-8):
    return solve_by_sweeps(mdp, mdp.expected_rewards, tolerance, entropic=False)


SOLVERS = [value_iteration, policy_iteration, sweeps]


def best_of_all_policies(mdp):
    """The pointwise best values over every deterministic policy."""
    choices = np.stack(np.meshgrid(*[range(mdp.num_actions)] * mdp.num_states), axis=-1).reshape(-1, mdp.num_states)
    return np.max([evaluate_policy(mdp, deterministic_policy(row, mdp.num_actions)) for row in choices], axis=0)


@given(st.integers(0, 500), st.sampled_from([0.3, 0.9, 0.99]))
def test_no_policy_is_better(seed, discount):
    mdp = random_mdp(3, 2, seed=seed, discount=discount)
    expected = best_of_all_policies(mdp)
    for solver in SOLVERS:
        solution = solver(mdp, 1e-8)
        assert np.abs(solution.values - expected).max() <= 2e-8
        achieved = evaluate_policy(mdp, solution.policy(2))
        assert achieved == pytest.approx(expected, abs=1e-5)


@given(cases(), st.integers(0, 100))
def test_the_error_bound_is_true(case, seed):
    """MacQueen's midpoint is within its bound of the optimum, from any values whatever."""
    mdp = case.mdp
    optimal = policy_iteration(mdp, 1e-9).values
    values = np.random.default_rng(seed).normal(scale=10.0, size=mdp.num_states)
    image = (mdp.expected_rewards + mdp.discount * mdp.dynamics.expect(values)).max(axis=1)
    midpoint, error = macqueen_bounds(values, image, mdp.discount)
    assert np.abs(midpoint - optimal).max() <= error + 1e-8


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_the_tolerance_is_kept(solver, tolerance):
    mdp = random_grid(20, seed=0).mdp
    reference = policy_iteration(mdp, 1e-9).values
    solution = solver(mdp, tolerance)
    assert solution.error_bound <= tolerance
    assert np.abs(solution.values - reference).max() <= solution.error_bound + 1e-9


def open_tied_grid(size):
    """A grid without noise or walls: nearly every state has two equally good actions."""
    rewards = np.full((size, size), 0.1)
    rewards[-1, -1] = 1.0
    return Grid(np.zeros((size, size), bool), rewards, ((0, 0),), noise=0.0, discount=0.95).mdp


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_ties_do_not_make_policy_iteration_cycle(noise):
    size = 100
    rewards = np.full((size, size), 0.1)
    rewards[-1, -1] = 1.0
    mdp = Grid(np.zeros((size, size), bool), rewards, ((0, 0),), noise=noise, discount=0.95).mdp
    solution = policy_iteration(mdp, 1e-8)
    assert solution.iterations < 250
    assert np.abs(solution.values - sweeps(mdp).values).max() < 2e-8


def test_all_actions_tied():
    mdp = TabularMDP.from_dense(np.full((4, 3, 4), 0.25), np.ones(4), 0.9)
    for solver in SOLVERS:
        assert solver(mdp).values == pytest.approx(np.full(4, 10.0))


def test_corridor_by_hand():
    # Three cells, reward 1 at the right end, deterministic, discount 1/2: 0.5, 1, 2.
    mdp = Grid(np.zeros((1, 3), bool), np.array([[0.0, 0.0, 1.0]]), ((0, 0),), discount=0.5).mdp
    for solver in SOLVERS:
        solution = solver(mdp)
        assert solution.values == pytest.approx([0.5, 1.0, 2.0])
        assert solution.actions[:2].tolist() == [1, 1]


@pytest.mark.parametrize("rewards", [[-3.0, -1.0, -2.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 5.0]])
def test_rewards_of_any_sign(rewards):
    mdp = random_mdp(3, 2, seed=5)
    mdp = TabularMDP(mdp.dynamics, np.repeat(np.array(rewards)[:, None], 2, axis=1), mdp.start, 0.9)
    expected = best_of_all_policies(mdp)
    for solver in SOLVERS:
        assert solver(mdp).values == pytest.approx(expected, abs=1e-7)


@pytest.mark.slow
@given(cases())
def test_sweeps_solve_the_joint_problem_too(case):
    mdp = case.mdp
    exact = joint_iteration(mdp, mdp.discount)[-1]
    solution = solve_by_sweeps(mdp, augmented_rewards(mdp), 1e-9, entropic=True)
    assert solution.values == pytest.approx(exact.values, abs=1e-7)


@pytest.mark.slow
def test_large_mdps_are_solved_by_sweeps_to_the_same_answers(monkeypatch):
    grid = random_grid(40, seed=3).mdp
    small = {"plain": solve(grid, 1e-7), "mnm": solve_mnm(grid, 1e-7), "tight": solve_tight(grid, 1e-7)}
    monkeypatch.setattr(solvers, "SMALL", 10)
    monkeypatch.setattr("mnm.tabular.mnm.SMALL", 10)
    assert solve(grid, 1e-7).values == pytest.approx(small["plain"].values, abs=3e-7)
    for name, function in (("mnm", solve_mnm), ("tight", solve_tight)):
        large = function(grid, 1e-7)
        assert large.values == pytest.approx(small[name].values, abs=3e-7)
        assert large.model.probs == pytest.approx(small[name].model.probs, abs=1e-6)
        assert log_expected_return(grid, large.policy) == pytest.approx(
            log_expected_return(grid, small[name].policy), abs=1e-6
        )


def test_solve_mnm_is_the_optimum_of_the_sharper_bound():
    mdp = stochastic_gridworld().mdp
    step = solve_mnm(mdp)
    assert average(mdp.start, step.values) == pytest.approx(sharper_bound(mdp, step.policy, step.model), abs=1e-6)
    assert average(mdp.start, step.values) == pytest.approx(
        average(mdp.start, joint_iteration(mdp, mdp.discount)[-1].values), abs=1e-6
    )


@given(cases())
def test_solve_tight_is_the_limit_of_the_tight_iteration(case):
    assert solve_tight(case.mdp).values == pytest.approx(joint_iteration_tight(case.mdp)[-1].values, abs=1e-6)


def test_solve_tight_refuses_negative_rewards():
    with pytest.raises(MDPError, match="rewards below 0"):
        solve_tight(three_states().with_reward_offset(-10.0))


@pytest.mark.slow
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_impossible_tolerance_is_an_error_that_says_what_can_be_had(solver):
    with pytest.raises(ConvergenceError, match="error bound"):
        solver(random_mdp(30, 3, seed=0, discount=0.99), 1e-300)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan])
def test_bad_tolerances(solver, tolerance):
    with pytest.raises(MDPError, match="tolerance must be positive"):
        solver(three_states(), tolerance)


def test_a_grid_of_forty_thousand_cells():
    mdp = random_grid(200, seed=1).mdp
    began = time.monotonic()
    solution, step = solve(mdp, 1e-6), solve_mnm(mdp, 1e-6)
    assert time.monotonic() - began < 60  # seconds, with compilation; it is about one without
    image = (mdp.expected_rewards + mdp.discount * mdp.dynamics.expect(solution.values)).max(axis=1)
    assert np.abs(image - solution.values).max() < 1e-6
    assert average(mdp.start, step.values) <= np.log(average(mdp.start, solution.values))


def test_path_lengths():
    grid = stochastic_gridworld()
    lengths = path_lengths(grid.mdp, grid.state((0, 9)))
    assert lengths[grid.state((0, 9))] == 0
    assert lengths[grid.state((0, 6))] == 3
    # From the start: down 6 rows, across 9 columns, up 6 rows.
    assert lengths[grid.state((0, 0))] == 21
