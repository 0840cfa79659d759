"""Fig. transfer: Q-learning on new goals, in the real dynamics or in those MnM learned for the old goal.

The paper does not publish the goals of its tasks A, B and C. Here A is on the start's side of the wall; B and C
are behind it, C further away. The transferred model is the one that the paper's joint iteration ends with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from mnm.analysis.statistics import is_significant, permutation_p_value
from mnm.figures.base import Columns, PaperFigure, Verdict, by_seed, stacked, where
from mnm.plotting.style import BLACK, BLUE, ORANGE, draw_grid, draw_seeds
from mnm.tabular.mnm import joint_iteration_paper
from mnm.tabular.paper_tasks import GOAL, stochastic_gridworld
from mnm.tabular.q_learning import METHODS, Run, learn
from mnm.tabular.solvers import optimal_return

GOALS = {"A": (4, 1), "B": (6, 6), "C": (6, 8)}
SEEDS = range(5)
REACHED = 0.1
"""A run has found the goal if it ends above this share of the optimal return; never finding it gives below 1%."""
DYNAMICS = ("true dynamics", "MnM's dynamics for the old goal")


def run() -> Columns:
    """task, dynamics, seed, iteration, return (and the task's optimal return, repeated)."""
    model = joint_iteration_paper(stochastic_gridworld().mdp)[-1].model
    names = [(task, dynamics, seed) for task in GOALS for dynamics in DYNAMICS for seed in SEEDS]
    mdps = {task: stochastic_gridworld(goal).mdp for task, goal in GOALS.items()}
    optimal = {task: optimal_return(mdp) for task, mdp in mdps.items()}
    curves = learn(
        [
            Run(mdps[task], METHODS["Q-learning"], seed, None if dynamics == DYNAMICS[0] else model)
            for task, dynamics, seed in names
        ]
    )
    return stacked(
        *(
            {
                "task": task,
                "goal_row": GOALS[task][0],
                "goal_column": GOALS[task][1],
                "dynamics": dynamics,
                "seed": seed,
                "iteration": curves.iterations,
                "return": returns,
                "optimal": optimal[task],
            }
            for (task, dynamics, seed), returns in zip(names, curves.returns, strict=True)
        )
    )


def draw(columns: Columns) -> Figure:
    """The map with the goals, then a panel of curves per task."""
    figure = Figure(figsize=(9.0, 2.9), layout="constrained")
    map_axes, *panels = figure.subplots(1, 4, width_ratios=(1.1, 1, 1, 1))
    grid = stochastic_gridworld()
    draw_grid(map_axes, replace(grid, goals=(GOAL, *GOALS.values())), goal_names=("old", *GOALS))
    map_axes.set_title("the old goal and the new ones")
    for axes, task in zip(panels, GOALS, strict=True):
        rows = where(columns, task=task)
        for dynamics, colour in zip(DYNAMICS, (ORANGE, BLUE), strict=True):
            draw_seeds(axes, *by_seed(where(rows, dynamics=dynamics), "iteration", "return"), dynamics, colour)
        axes.axhline(rows["optimal"][0], color=BLACK, linestyle=":", linewidth=1, label="optimal")
        axes.set(xlabel="iteration", title=f"task {task}, goal {GOALS[task]}")
    panels[0].set_ylabel("return in the real dynamics")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Final returns as shares of the optimum, and how many seeds reach the goal at all."""
    shares: dict[tuple[str, str], np.ndarray] = {}
    for task in GOALS:
        for dynamics in DYNAMICS:
            rows = where(columns, task=task, dynamics=dynamics)
            shares[task, dynamics] = by_seed(rows, "iteration", "return")[1][:, -1] / rows["optimal"][0]

    def measured(task: str) -> str:
        true, transferred = (
            f"{np.median(share):.0%} of optimal ({int((share > REACHED).sum())} of {len(share)} seeds reach the goal)"
            for share in (shares[task, dynamics] for dynamics in DYNAMICS)
        )
        return f"goal {GOALS[task]}: transferred {transferred}; true {true}"

    verdicts = [
        Verdict(
            f"On task {task} the transferred dynamics make little difference",
            "little difference",
            measured(task),
            bool(abs(np.median(shares[task, DYNAMICS[0]]) - np.median(shares[task, DYNAMICS[1]])) < 0.1),
        )
        for task in "AB"
    ]
    true, transferred = (shares["C", dynamics] for dynamics in DYNAMICS)
    p = permutation_p_value(transferred, true)
    return [
        *verdicts,
        Verdict(
            "On task C the transferred dynamics accelerate learning",
            "can accelerate learning of challenging, similar tasks",
            f"{np.median(transferred):.0%} against {np.median(true):.0%} of optimal, p = {p:.3f}",
            is_significant(p),
        ),
        Verdict(
            "Only with the transferred dynamics is Q-learning able to solve task C",
            "only with the transferred dynamics",
            measured("C"),
            bool((transferred > REACHED).mean() > 0.5 and not (true > REACHED).any()),
        ),
    ]


FIGURE = PaperFigure("dynamics_transfer", "MnM's dynamics transferred to new goals", run, draw, judge)
