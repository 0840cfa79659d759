"""The lower bound for goal reaching: false as printed, true as corrected, and tight with the ladder's last bound.

Left: 300 random MDPs with random policies, models and goals. Right: the gridworld's goal reached by joint
iteration for the tight bound, with the reward (1-discount) p(goal | s, a).
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import BLACK, BLUE, ORANGE, RED
from mnm.tabular.bounds import (
    average,
    corrected_goal_bound,
    goal_mdp,
    log_expected_return,
    log_goal_occupancy,
    printed_goal_bound,
    tight_bound,
)
from mnm.tabular.mnm import joint_iteration_tight
from mnm.tabular.paper_tasks import GOAL, stochastic_gridworld
from mnm.tabular.random_mdps import random_mdp, random_model, random_policy

TRIALS = 300
STATES = 6


def run() -> Columns:
    """Per random MDP: the bounds and what they bound; per iteration on the grid: the tight bound and log rho."""
    rows: list[dict[str, object]] = []
    for seed in range(TRIALS):
        mdp = random_mdp(STATES, 3, seed=seed)
        policy, model = random_policy(mdp, seed=seed + TRIALS), random_model(mdp, seed=seed + 2 * TRIALS)
        goal = seed % STATES
        rows.append(
            {
                "experiment": "random",
                "number": seed,
                "log_rho": log_goal_occupancy(mdp, policy, goal),
                "printed": printed_goal_bound(mdp, policy, model, goal),
                "printed_at_real_dynamics": printed_goal_bound(mdp, policy, mdp.dynamics, goal),
                "corrected": corrected_goal_bound(mdp, policy, model, goal),
                "tight_bound": tight_bound(goal_mdp(mdp, goal), policy, model),
            }
        )
    grid = stochastic_gridworld()
    mdp = goal_mdp(grid.mdp, grid.state(GOAL))
    for number, step in enumerate(joint_iteration_tight(mdp)):
        rows.append(
            {
                "experiment": "grid",
                "number": number,
                "log_rho": log_expected_return(mdp, step.policy),
                "printed": np.nan,
                "printed_at_real_dynamics": np.nan,
                "corrected": np.nan,
                "tight_bound": average(mdp.start, step.values),
            }
        )
    return stacked(*rows)


def draw(columns: Columns) -> Figure:
    """Scatter of the bounds against what they bound; the tight iteration on the grid."""
    figure = Figure(figsize=(7.2, 3.5), layout="constrained")
    scatter, curves = figure.subplots(1, 2)
    rows = where(columns, experiment="random")
    for name, colour, label in (
        ("printed_at_real_dynamics", RED, "as printed, at q = p"),
        ("corrected", BLUE, "corrected, random q"),
        ("tight_bound", ORANGE, "tight bound, random q"),
    ):
        scatter.plot(rows["log_rho"], rows[name], ".", color=colour, markersize=3, label=label)
    ends = np.array([rows["log_rho"].min(), rows["log_rho"].max()])
    scatter.plot(ends, ends, color=BLACK, linewidth=1, label="equality")
    scatter.set(
        xlabel=r"log occupancy of the goal, $\log\rho(g)$ (nats)",
        ylabel="bound (nats)",
        title=f"{TRIALS} random MDPs: a lower bound\nlies below the line",
    )
    figure.legend(*scatter.get_legend_handles_labels(), loc="outside lower left", ncols=2, markerscale=3)
    grid_rows = where(columns, experiment="grid")
    curves.plot(grid_rows["number"], grid_rows["tight_bound"], color=ORANGE, label="tight bound")
    curves.plot(grid_rows["number"], grid_rows["log_rho"], color=BLACK, linestyle="--", label=r"$\log\rho(g)$")
    curves.set(xlabel="iteration", ylabel="nats", title="gridworld: joint iteration,\ntight bound")
    curves.xaxis.set_major_locator(MaxNLocator(integer=True))
    curves.legend()
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Count the violations."""
    rows, grid_rows = where(columns, experiment="random"), where(columns, experiment="grid")
    at_real = int((rows["printed_at_real_dynamics"] > rows["log_rho"]).sum())
    printed = int((rows["printed"] > rows["log_rho"]).sum())
    corrected = int((rows["corrected"] > rows["log_rho"] + 1e-9).sum())
    gap = float(grid_rows["log_rho"][-1] - grid_rows["tight_bound"][-1])
    return [
        Verdict(
            "The printed goal-reaching bound holds for any dynamics and policy",
            "holds",
            f"violated in {at_real} of {TRIALS} random MDPs at q = p, where it is "
            f"{rows['printed_at_real_dynamics'].mean():.3f} = -log(1 - discount); in {printed} at random q",
            at_real + printed == 0,
        ),
        Verdict(
            "The corrected bound holds (our correction)",
            "-",
            f"violated in {corrected} of {TRIALS}",
            corrected == 0,
        ),
        Verdict(
            "Goal reaching has a tight bound (Markov model; ours)",
            "can be modified to become tight",
            f"gap {abs(gap):.1e} on the gridworld after {len(grid_rows['number']) - 1} iterations",
            abs(gap) < 1e-9,
        ),
    ]


FIGURE = PaperFigure("goal_reaching", "The bound for goal reaching, printed and corrected", run, draw, judge)
