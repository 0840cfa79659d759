"""MnM with a model too coarse for the task: it makes the same predictions for whole blocks of cells.

The model predicts displacements (moves), one distribution per block and action, so it cannot see a wall that is
finer than a block: it believes that the wall can be crossed with some probability. The augmented reward pays
KL(q || p) for what the model gets wrong, and steers the policy around such blocks; without it the policy walks
into the wall. The paper limits the infinite KL (p is deterministic) by label smoothing; here it is clipped.

The model can predict cells inside the wall, so here every cell is a state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mnm.tabular.bounds import kl_divergence
from mnm.tabular.evaluation import evaluate
from mnm.tabular.grids import MOVES, Cell, Grid
from mnm.tabular.mdp import Dynamics, Floats, deterministic_policy

BLOCK = 3
ITERATIONS = 20
LARGEST_KL = 5.0
AVERAGING = 0.5


@dataclass(frozen=True, eq=False)
class AliasedAgent:
    """A policy on all cells of the grid, wall cells included, and the coarse model it was planned in."""

    actions: NDArray[np.int64]
    """[rows * columns]"""
    model: Dynamics
    penalties: Floats
    """[rows * columns, A] the clipped KL(q || p)."""


def plan_with_aliased_model(grid: Grid, *, with_classifier: bool) -> AliasedAgent:
    """Joint iteration with the coarse model; `with_classifier` keeps the KL term of the augmented reward."""
    real = all_cells_dynamics(grid)
    base = block_average(grid, move_probs(grid, real))
    rest = 1.0 - grid.discount
    log_rewards = rest * np.log(grid.cell_rewards.ravel())[:, None]
    policy = np.full((grid.walls.size, grid.num_moves), 1.0 / grid.num_moves)
    probs = base
    for _ in range(ITERATIONS):
        model = displaced_dynamics(grid, probs)
        penalties = np.clip(kl_divergence(model, real), 0.0, LARGEST_KL)
        rewards = log_rewards - penalties * with_classifier
        values = evaluate(model, rewards, policy, grid.discount)
        greedy = np.argmax(rewards + grid.discount * model.expect(values), axis=1)
        policy = (1 - AVERAGING) * policy + AVERAGING * deterministic_policy(greedy, grid.num_moves)
        tilted = base * np.exp(values[displaced_cells(grid)])[:, None, :]
        tilted = block_average(grid, tilted / tilted.sum(axis=-1, keepdims=True))
        probs = (1 - AVERAGING) * probs + AVERAGING * tilted
    return AliasedAgent(greedy, model, penalties)


def displaced_cells(grid: Grid) -> NDArray[np.int64]:
    """[cells, moves] the cell that each move leads to in the model: walls are no obstacle, the edge is."""
    rows, columns = grid.walls.shape
    cells = np.argwhere(np.ones_like(grid.walls))
    moved = np.clip(cells[:, None] + MOVES[: grid.num_moves], 0, (rows - 1, columns - 1))
    return np.asarray(moved @ (columns, 1))


def displaced_dynamics(grid: Grid, probs: Floats) -> Dynamics:
    """Distributions over moves, [cells, A, moves], as dynamics over cells."""
    successors = np.broadcast_to(displaced_cells(grid)[:, None], probs.shape)
    return Dynamics.from_lists(successors, probs)


def all_cells_dynamics(grid: Grid) -> Dynamics:
    """The real, deterministic dynamics on all cells: a move into a wall stays."""
    targets = displaced_cells(grid)
    own = np.arange(grid.walls.size)
    outcomes = np.where(grid.walls.ravel()[targets], own[:, None], targets)
    return Dynamics(outcomes[:, :, None], np.ones((*outcomes.shape, 1)))


def move_probs(grid: Grid, real: Dynamics) -> Floats:
    """The real dynamics as distributions over moves, [cells, A, moves]: blocked moves count as staying."""
    moved = real.successors[:, :, 0] != np.arange(grid.walls.size)[:, None]
    return np.eye(grid.num_moves)[np.where(moved, np.arange(grid.num_moves), grid.num_moves - 1)]


def block_average(grid: Grid, probs: Floats) -> Floats:
    """The same distribution for all cells of a block: the average over the block."""
    rows, columns = grid.walls.shape
    blocks = probs.reshape(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK, *probs.shape[1:])
    averaged = np.broadcast_to(blocks.mean(axis=(1, 3), keepdims=True), blocks.shape)
    return averaged.reshape(probs.shape)


def walk(grid: Grid, actions: NDArray[np.int64], steps: int) -> list[Cell]:
    """The cells that the policy visits from the start in the real, deterministic grid."""
    targets = all_cells_dynamics(grid).successors[:, :, 0]
    columns = grid.walls.shape[1]
    cell = grid.starts[0][0] * columns + grid.starts[0][1]
    path = [cell]
    for _ in range(steps):
        path.append(int(targets[path[-1], actions[path[-1]]]))
    return [divmod(cell, columns) for cell in path]
