"""The coarse model: the same for a whole block, blind to the wall, and what the KL term makes of it."""

import numpy as np
import pytest

from mnm.tabular.aliased import (
    BLOCK,
    all_cells_dynamics,
    block_average,
    displaced_cells,
    displaced_dynamics,
    move_probs,
    plan_with_aliased_model,
    walk,
)
from mnm.tabular.paper_tasks import aliased_gridworld


@pytest.fixture(scope="module")
def grid():
    return aliased_gridworld()


def test_real_dynamics_on_all_cells(grid):
    targets = all_cells_dynamics(grid).successors[:, :, 0].reshape(15, 15, 5)
    right = 1
    assert targets[0, 6, right] == 6  # the wall
    assert targets[8, 6, right] == 8 * 15 + 7  # below it
    assert targets[0, 0, 0] == 0  # the edge
    assert targets[3, 3, 4] == 3 * 15 + 3  # staying


def test_the_model_walks_through_walls_but_not_off_the_grid(grid):
    cells = displaced_cells(grid).reshape(15, 15, 5)
    assert cells[0, 6, 1] == 7
    assert cells[0, 0, 0] == 0


def test_blocks_share_one_distribution(grid):
    averaged = block_average(grid, move_probs(grid, all_cells_dynamics(grid))).reshape(15, 15, 5, 5)
    block = averaged[:BLOCK, 6:9]
    assert np.ptp(block, axis=(0, 1)).max() == 0
    # Moving right in rows 0-2, columns 6-8: blocked in the three cells left of the wall only.
    assert averaged[0, 6, 1] == pytest.approx([0, 6 / 9, 0, 0, 3 / 9])


def test_averaged_rows_are_distributions(grid):
    probs = block_average(grid, move_probs(grid, all_cells_dynamics(grid)))
    assert displaced_dynamics(grid, probs).probs.sum(axis=-1) == pytest.approx(1.0)


def test_with_the_classifier_the_path_goes_around_the_wall(grid):
    agent = plan_with_aliased_model(grid, with_classifier=True)
    path = walk(grid, agent.actions, 40)
    assert path[0] == (0, 0)
    assert path[-1] == grid.goals[0]
    assert max(row for row, _ in path) > 8


def test_without_it_the_path_ends_at_the_wall(grid):
    path = walk(grid, plan_with_aliased_model(grid, with_classifier=False).actions, 40)
    assert path[-1] == (0, 6)


def test_penalties_are_clipped_and_vanish_where_the_model_is_exact(grid):
    agent = plan_with_aliased_model(grid, with_classifier=True)
    assert agent.penalties.min() >= 0
    assert agent.penalties.max() == 5.0
    middle_of_free_block = 10 * 15 + 4
    assert agent.penalties[middle_of_free_block] == pytest.approx(np.zeros(5), abs=1e-9)
