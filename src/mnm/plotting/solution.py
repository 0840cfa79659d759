"""The picture of a finite MDP that has been solved."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnm.plotting.style import BLUE, ON_MAP, STYLE, draw_arrows, draw_grid, draw_values, grid_legend
from mnm.tabular.evaluation import chain, evaluate_policy
from mnm.tabular.files import InputError
from mnm.tabular.grids import MOVES, Grid
from mnm.tabular.solution import LARGEST_PRINTED_POLICY, Solution

LARGEST_DRAWN_MDP = 200


def draw_report(report: Solution) -> Figure:
    """The picture: the policy over its values, and what MnM's model adds to the real dynamics."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 4.0), layout="constrained")
        if report.task.grid is not None:
            _draw_on_grid(figure, report, report.task.grid)
        elif report.task.mdp.num_states <= LARGEST_DRAWN_MDP:
            _draw_as_matrices(figure, report)
        else:
            raise InputError(
                f"--picture: {report.task.name} has {report.task.mdp.num_states} states; pictures are drawn for grids, "
                f"and for other MDPs of up to {LARGEST_DRAWN_MDP} states"
            )
    return figure


def _draw_on_grid(figure: Any, report: Solution, grid: Grid) -> None:
    step = report.best
    policy_axes, model_axes = figure.subplots(1, 2)
    draw_grid(policy_axes, grid)
    image = draw_values(policy_axes, grid, evaluate_policy(report.task.mdp, step.policy))
    figure.colorbar(image, ax=policy_axes, label="value of MnM's policy", shrink=0.8)
    draw_arrows(policy_axes, grid, MOVES[step.policy.argmax(axis=1)], 0.6, ON_MAP)
    policy_axes.set_title(f"MnM's policy\nreturn {report.return_of(step):.4g} (optimal {report.optimal_return:.4g})")
    draw_grid(model_axes, grid)
    longest = draw_arrows(model_axes, grid, grid.added_displacement(step.model), 0.8, BLUE)
    exact = "the dynamics are deterministic:\nMnM's model is exact"
    added = f"what MnM's model adds\n(longest arrow: {longest:.2g} cells a step)"
    model_axes.set_title(added if longest > 1e-12 else exact)
    figure.legend(handles=grid_legend(arrows=True), loc="outside lower center", ncols=3)


def _draw_as_matrices(figure: Any, report: Solution) -> None:
    mdp, step = report.task.mdp, report.best
    values_axes, model_axes = figure.subplots(1, 2)
    values = evaluate_policy(mdp, step.policy)
    values_axes.bar(np.arange(mdp.num_states), values, color=BLUE)
    if mdp.num_states <= LARGEST_PRINTED_POLICY:
        for state, (value, action) in enumerate(zip(values, step.policy.argmax(axis=1), strict=True)):
            values_axes.annotate(str(action), (state, value), ha="center", va="bottom", fontsize=7)
    values_axes.set(xlabel="state", ylabel="value of MnM's policy", title="values, with the chosen action's number")
    values_axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    added = (chain(step.model, step.policy) - chain(mdp.dynamics, step.policy)).toarray()
    largest = max(float(np.abs(added).max()), 1e-12)
    image = model_axes.imshow(added, cmap="PuOr", vmin=-largest, vmax=largest)
    model_axes.grid(visible=False)
    model_axes.set(
        xlabel="next state",
        ylabel="state",
        title="what MnM's model adds to the\nprobabilities, under its policy",
    )
    for axis in (model_axes.xaxis, model_axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=model_axes, shrink=0.8)
