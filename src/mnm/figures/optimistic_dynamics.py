"""Fig. optimistic dynamics: how MnM's model bends the real noise, for both rewards that the authors used.

The arrows are E_q[step] - E_p[step] in each cell, averaged over the actions: what the model adds to the real
dynamics. An arrow points towards the goal if it points to where the value is higher.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import BLUE, draw_arrows, draw_grid, grid_legend
from mnm.tabular.grids import Grid
from mnm.tabular.mdp import TabularMDP
from mnm.tabular.mnm import joint_iteration_paper
from mnm.tabular.paper_tasks import GOAL, optimistic_first_version, optimistic_text
from mnm.tabular.solvers import path_lengths

TITLES = {
    "text": "reward by the transition, 90% noise, discount 0.5",
    "first version": "reward $10^{-5}$, $10^9$ at the goal, 50% noise, discount 0.9",
}


def tasks() -> dict[str, tuple[Grid, TabularMDP]]:
    """The grid to draw and the MDP to solve, by version."""
    first = optimistic_first_version()
    return {"text": optimistic_text(), "first version": (first, first.mdp)}


def run() -> Columns:
    """Per version and cell: the arrow, and how far the cell is from the goal before and after the model's bend."""
    tables = []
    for version, (grid, mdp) in tasks().items():
        step = joint_iteration_paper(mdp)[-1]
        bend = grid.added_displacement(step.model)
        manhattan = np.abs(grid.cells - np.array(GOAL)).sum(axis=1).astype(float)
        walked = path_lengths(mdp, grid.state(GOAL))
        shift = {
            name: ((step.model.probs - mdp.dynamics.probs) * distance[mdp.dynamics.successors]).sum(axis=2).mean(axis=1)
            for name, distance in (("manhattan", manhattan), ("path", walked))
        }
        tables.append(
            {
                "version": version,
                "row": grid.cells[:, 0],
                "column": grid.cells[:, 1],
                "bend_rows": bend[:, 0],
                "bend_columns": bend[:, 1],
                "manhattan_change": shift["manhattan"],
                "path_change": shift["path"],
            }
        )
    return stacked(*tables)


def draw(columns: Columns) -> Figure:
    """A map for each version."""
    figure = Figure(figsize=(7.2, 3.7), layout="constrained")
    for axes, (version, (grid, _)) in zip(figure.subplots(1, 2), tasks().items(), strict=True):
        rows = where(columns, version=version)
        draw_grid(axes, grid)
        bend = np.stack([rows["bend_rows"], rows["bend_columns"]], axis=1)
        longest = draw_arrows(axes, grid, bend, 0.8, BLUE)
        axes.set_title(f"{TITLES[version]}\nlongest arrow: {longest:.2g} cells a step", fontsize=8)
    figure.legend(handles=grid_legend(arrows=True), loc="outside lower center", ncols=3)
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """In how many cells the model moves the agent towards the goal, by the distance that the reward is about."""
    verdicts = []
    for version, distance in (("text", "manhattan"), ("first version", "path")):
        rows = where(columns, version=version)
        change = rows[f"{distance}_change"]
        bent = np.abs(change) > 1e-9
        share = float((change[bent] < 0).mean())
        verdicts.append(
            Verdict(
                f"The model's noise leads towards the goal ({version}'s reward)",
                "blue arrows point towards the goal",
                f"in {share:.0%} of the {int(bent.sum())} cells that it bends ({distance} distance); "
                f"mean {change.mean():+.3f} cells a step",
                share > 0.9,
            )
        )
    return verdicts


FIGURE = PaperFigure("optimistic_dynamics", "MnM's optimistic dynamics as arrows", run, draw, judge)
