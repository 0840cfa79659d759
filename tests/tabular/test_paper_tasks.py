"""The paper's layouts, cell by cell where it matters."""

import numpy as np
import pytest

from mnm.tabular.paper_tasks import (
    aliased_gridworld,
    comparing_objectives,
    optimistic_first_version,
    optimistic_text,
    stochastic_gridworld,
    three_states,
)


def test_stochastic_gridworld():
    grid = stochastic_gridworld()
    assert grid.walls.sum() == 12
    assert grid.walls[:6, 4:6].all()
    assert grid.mdp.num_states == 88
    assert grid.mdp.discount == 0.9
    assert grid.mdp.start[grid.state((0, 0))] == 1.0
    assert grid.mdp.expected_rewards[grid.state((0, 9))].tolist() == [10.0] * 4
    assert np.sort(np.unique(grid.mdp.expected_rewards)).tolist() == [0.001, 10.0]
    # In the open: the chosen move has 1/2 + 1/8, the others 1/8.
    state = grid.state((8, 4))
    assert np.sort(grid.mdp.dynamics.probs[state, 2]) == pytest.approx([0.125, 0.125, 0.125, 0.625])


def test_other_rewards_on_the_same_map():
    assert np.unique(comparing_objectives().mdp.expected_rewards).tolist() == [1.0, 10.0]
    assert np.unique(optimistic_first_version().mdp.expected_rewards).tolist() == [1e-5, 1e9]


def test_rewards_by_the_transition():
    grid, mdp = optimistic_text()
    assert (grid.noise, mdp.discount) == (0.9, 0.5)
    state = grid.state((8, 4))
    rewards = dict(zip(mdp.dynamics.successors[state, 0].tolist(), mdp.rewards[state, 0].tolist(), strict=True))
    assert rewards[grid.state((7, 4))] == pytest.approx(2.001)  # up: closer to (0, 9)
    assert rewards[grid.state((8, 5))] == pytest.approx(2.001)  # right
    assert rewards[grid.state((9, 4))] == pytest.approx(0.001)  # down
    assert rewards[grid.state((8, 3))] == pytest.approx(0.001)  # left
    corner = grid.state((0, 0))
    stays = mdp.dynamics.successors[corner, 0].tolist().index(corner)
    assert mdp.rewards[corner, 0, stays] == pytest.approx(1.001)


def test_aliased_gridworld():
    grid = aliased_gridworld()
    assert np.argwhere(grid.walls).tolist() == [[row, 7] for row in range(8)]
    assert grid.num_moves == 5
    assert grid.mdp.dynamics.probs.max(axis=-1).min() == 1.0


def test_three_states():
    mdp = three_states()
    dense = mdp.dynamics.to_dense()
    assert dense[2, 1].tolist() == [0.0, 0.5, 0.5]
    assert dense[2, 0].tolist() == [0.0, 1.0, 0.0]
    assert mdp.expected_rewards[:, 0].tolist() == [50.0, 1.0, 51.0]
