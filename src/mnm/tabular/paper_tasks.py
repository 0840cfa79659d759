"""The paper's finite tasks. Layouts that its text does not print are the authors' own.

Nothing terminates: the goal keeps paying while the agent stays on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mnm.tabular.grids import Cell, Grid, open_grid
from mnm.tabular.mdp import TabularMDP

GOAL = (0, 9)
"""Goal of the 10 by 10 gridworld: beside the start, behind the wall."""


def stochastic_gridworld(goal: Cell = GOAL) -> Grid:
    """10x10, a wall between start and goal, half of the actions replaced; reward 0.001, 10 at the goal."""
    return open_grid(
        (10, 10),
        walls=[(slice(0, 6), slice(4, 6))],
        start=(0, 0),
        goal=goal,
        reward=0.001,
        goal_reward=10.0,
        noise=0.5,
    )


def comparing_objectives() -> Grid:
    """The stochastic gridworld with reward 1 (10 at the goal)."""
    grid = stochastic_gridworld()
    return replace(grid, cell_rewards=np.where(grid.cell_rewards > 1, 10.0, 1.0))


def optimistic_first_version() -> Grid:
    """The stochastic gridworld with the authors' first rewards: 1e-5, and 1e9 at the goal."""
    grid = stochastic_gridworld()
    return replace(grid, cell_rewards=np.where(grid.cell_rewards > 1, 1e9, 1e-5))


def optimistic_text() -> tuple[Grid, TabularMDP]:
    """The same map, 90% of the actions replaced, discount 0.5, and rewards by the transition.

    0.001 for a step away from the goal (Manhattan distance), 1.001 for none, 2.001 for one towards it. The
    grid is for drawing; its MDP has the rewards r(s, a, s').
    """
    grid = replace(stochastic_gridworld(), noise=0.9, discount=0.5)
    distance = np.abs(grid.cells - np.array(GOAL)).sum(axis=1)
    closer = distance[:, None, None] - distance[grid.dynamics.successors]
    return grid, TabularMDP(grid.dynamics, closer + 1.001, grid.mdp.start, grid.discount)


def aliased_gridworld() -> Grid:
    """15x15, deterministic, five actions, a wall finer than the 3x3 blocks; reward 1, 100 at the goal."""
    return open_grid(
        (15, 15),
        walls=[(slice(0, 8), slice(7, 8))],
        start=(0, 0),
        goal=(2, 12),
        reward=1.0,
        goal_reward=100.0,
        stay=True,
    )


def three_states() -> TabularMDP:
    """Left (50), middle (1, the start) and right (51); in the right state half of the actions become 'left'."""
    left, middle, right = 0, 1, 2
    probs = np.zeros((3, 2, 3))
    probs[left, 0, left] = probs[left, 1, middle] = 1.0
    probs[middle, 0, left] = probs[middle, 1, right] = 1.0
    probs[right, 0, middle] = 1.0
    probs[right, 1] = 0.5 * np.eye(3)[right] + 0.5 * np.eye(3)[middle]
    return TabularMDP.from_dense(probs, np.array([50.0, 1.0, 51.0]), discount=0.9, start=middle)
