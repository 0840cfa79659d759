"""Fig. inaccurate models: the paths and values of three agents when the model cannot see a thin wall."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import ORANGE, draw_grid, draw_values, grid_legend
from mnm.tabular.aliased import plan_with_aliased_model, walk
from mnm.tabular.evaluation import evaluate_policy
from mnm.tabular.grids import Grid
from mnm.tabular.mdp import deterministic_policy
from mnm.tabular.paper_tasks import aliased_gridworld
from mnm.tabular.solvers import solve

STEPS = 40
AGENTS = ("optimal (true dynamics)", "MnM (coarse model)", "MnM without classifier")


def run() -> Columns:
    """Per agent and cell: the action, the exact value of the agent's policy, and when its path visits the cell."""
    grid = aliased_gridworld()
    return stacked(
        _agent_table(grid, AGENTS[0], _on_all_cells(grid, solve(grid.mdp).actions)),
        _agent_table(grid, AGENTS[1], plan_with_aliased_model(grid, with_classifier=True).actions),
        _agent_table(grid, AGENTS[2], plan_with_aliased_model(grid, with_classifier=False).actions),
    )


def _on_all_cells(grid: Grid, actions: NDArray) -> NDArray:
    everywhere = np.zeros(grid.walls.shape, np.int64)
    everywhere[~grid.walls] = actions
    return everywhere.ravel()


def _agent_table(grid: Grid, agent: str, actions: NDArray) -> dict[str, object]:
    free_actions = actions.reshape(grid.walls.shape)[~grid.walls]
    values = evaluate_policy(grid.mdp, deterministic_policy(free_actions, grid.num_moves))
    path = walk(grid, actions, STEPS)
    first_visit = {cell: time for time, cell in reversed(list(enumerate(path)))}
    return {
        "agent": agent,
        "row": grid.cells[:, 0],
        "column": grid.cells[:, 1],
        "action": free_actions,
        "value": values,
        "visited_at": np.array([first_visit.get((int(r), int(c)), -1) for r, c in grid.cells]),
    }


def draw(columns: Columns) -> Figure:
    """One map per agent: its values as colours, its path as a line."""
    grid = aliased_gridworld()
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    largest = columns["value"].max()
    for axes, agent in zip(panels, AGENTS, strict=True):
        rows = where(columns, agent=agent)
        draw_grid(axes, grid)
        image = draw_values(axes, grid, rows["value"], largest)
        order = np.argsort(rows["visited_at"])
        order = order[rows["visited_at"][order] >= 0]
        axes.plot(rows["column"][order], rows["row"][order], color=ORANGE, linewidth=2, zorder=3)
        start = where(rows, row=grid.starts[0][0], column=grid.starts[0][1])["value"][0]
        axes.set_title(f"{agent}\nreturn {start:.1f}")
        axes.label_outer()
    figure.colorbar(image, ax=panels, label="value of the agent's policy", shrink=0.8)
    figure.legend(handles=grid_legend(), loc="outside lower center", ncols=2)
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Who reaches the goal."""
    grid = aliased_gridworld()
    goal, start = grid.goals[0], grid.starts[0]

    def outcome(agent: str) -> tuple[bool, float]:
        rows = where(columns, agent=agent)
        reached = where(rows, row=goal[0], column=goal[1])["visited_at"][0] >= 0
        return bool(reached), float(where(rows, row=start[0], column=start[1])["value"][0])

    (_, optimal), (mnm_reaches, mnm), (ablation_reaches, ablation) = (outcome(agent) for agent in AGENTS)
    return [
        Verdict(
            "MnM solves the task despite the inaccurate model",
            "is able to solve",
            f"reaches the goal: {'yes' if mnm_reaches else 'no'}; return {mnm:.1f}, optimal {optimal:.1f}",
            mnm_reaches,
        ),
        Verdict(
            "Without the classifier term it tries to cross the wall and fails",
            "fails to reach the goal",
            f"reaches the goal: {'yes' if ablation_reaches else 'no'}; return {ablation:.1f}",
            not ablation_reaches,
        ),
    ]


FIGURE = PaperFigure("aliased_model", "Planning with a model that cannot see the wall", run, draw, judge)
