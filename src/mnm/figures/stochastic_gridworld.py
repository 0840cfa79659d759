"""Fig. stochastic gridworld: learning curves of MnM, Q-learning with the true dynamics, and VMBPO."""

from __future__ import annotations

from matplotlib.figure import Figure

from mnm.analysis.statistics import is_significant, permutation_p_value, spread
from mnm.figures.base import Columns, PaperFigure, Verdict, draw_learning
from mnm.figures.gridworld_curves import SEEDS, final_returns, selected
from mnm.plotting.style import draw_grid, grid_legend
from mnm.tabular.paper_tasks import stochastic_gridworld

METHODS = ("MnM", "Q-learning", "VMBPO")


def run() -> Columns:
    """The curves of the three methods."""
    return selected(*METHODS)


def draw(columns: Columns) -> Figure:
    """Curves on the left, the map on the right."""
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    curves, map_axes = figure.subplots(1, 2, width_ratios=(1.6, 1))
    draw_learning(curves, columns, "method", "iteration")
    curves.set_xlabel("iteration (one 200-step episode and one batch pass each)")
    curves.set_title(f"Stochastic gridworld (median and quartiles, {len(SEEDS)} seeds)")
    draw_grid(map_axes, stochastic_gridworld())
    map_axes.legend(handles=grid_legend(), loc="lower left", fontsize=7)
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Who ends higher."""
    final = {method: final_returns(columns, method) for method in METHODS}
    optimal = columns["optimal"][0]
    return [
        Verdict(
            f"MnM outperforms {rival} on the stochastic gridworld",
            "outperforms",
            f"last return {spread(final['MnM'])} against {spread(final[rival])}, optimal {optimal:.4f}; "
            f"p = {permutation_p_value(final['MnM'], final[rival]):.3f}",
            is_significant(permutation_p_value(final["MnM"], final[rival])),
        )
        for rival in ("Q-learning", "VMBPO")
    ]


FIGURE = PaperFigure("stochastic_gridworld", "Learning curves on the stochastic gridworld", run, draw, judge)
