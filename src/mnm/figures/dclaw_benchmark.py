"""The paper's comparison on the robot hand: return and success of MnM-approx, MBPO and SAC on four tasks."""

from __future__ import annotations

from matplotlib.figure import Figure

from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import (
    POSE,
    SCREW_FIXED,
    SCREW_RANDOM,
    TURN,
    DeepFigure,
    RunGrid,
    draw_agents,
    draw_reached,
    outperforms,
    rows_of_panels,
    tasks,
)
from mnm.plotting.style import legend_of_seeds


def draw(columns: Columns) -> Figure:
    """A column for each task: returns, what half of the seeds have had, the share of episodes that end in success."""
    figure, axes = rows_of_panels(columns, 3, (3.2, 6.8))
    for (upper, middle, lower), env in zip(axes.T, tasks(columns), strict=True):
        draw_agents(upper, where(columns, env=env), "return")
        draw_reached(middle, where(columns, env=env))
        draw_agents(lower, where(columns, env=env), "success")
        lower.set_ylim(-0.05, 1.05)
    axes[0, 0].set_ylabel("evaluation return")
    axes[1, 0].set_ylabel("reached by half of the seeds")
    axes[2, 0].set_ylabel("episodes ending in success")
    legend_of_seeds(axes[0, 0])
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """By task."""
    return [
        *outperforms(columns, "mnm_approx", "mbpo", "on all four, p <= 0.03"),
        *outperforms(columns, "mnm_approx", "sac", "on two of four, p <= 0.02"),
        *outperforms(columns, "sac", "mbpo", "MBPO is often worse than SAC"),
    ]


FIGURE = DeepFigure(
    "dclaw_benchmark",
    (RunGrid((POSE, TURN, SCREW_FIXED, SCREW_RANDOM), ("mnm_approx", "mbpo", "sac")),),
    draw,
    judge,
)
