"""Model exploitation: Q at the start of an episode against the discounted return that was then obtained."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import (
    DRAWER,
    HALF_CHEETAH,
    POSE,
    SCREW_FIXED,
    SCREW_RANDOM,
    DeepFigure,
    RunGrid,
    agents,
    both,
    compared,
    draw_lines,
    means,
    measured_mean,
    panels,
    seeds_of,
    tasks,
)
from mnm.plotting.style import agent_name, legend_of_seeds, looks

AGENTS = ("mnm_approx", "mbpo")


def draw(columns: Columns) -> Figure:
    """Q solid, the return dashed."""
    figure, axes = panels(columns)
    for panel, env in zip(axes, tasks(columns), strict=True):
        task_rows = where(columns, env=env)
        look = looks(agents(task_rows))
        for agent in agents(task_rows):
            rows, colour = where(task_rows, agent=agent), look[agent].colour
            draw_lines(panel, rows, "q_at_start", f"{agent_name(agent)}: Q", colour)
            draw_lines(panel, rows, "discounted_return", f"{agent_name(agent)}: return", colour, "--")
    axes[0].set_ylabel("Q, and discounted return")
    legend_of_seeds(axes[0])
    return figure


def gaps(columns: Columns) -> NDArray:
    """For each seed, the mean over training of |Q - return|."""
    errors = columns | {"gap": np.abs(columns["q_at_start"] - columns["discounted_return"])}
    return np.array([measured_mean(values) for _, values in seeds_of(errors, "gap")])


def jumps(columns: Columns) -> NDArray:
    """For each seed, the mean change of Q between two evaluations."""
    return np.array([measured_mean(np.abs(np.diff(values))) for _, values in seeds_of(columns, "q_at_start")])


def judge(columns: Columns) -> list[Verdict]:
    """Accurate: close to the return. Stable: little change from one evaluation to the next."""
    verdicts = []
    for env, *rows in both(columns, *AGENTS):
        for word, unit, measure in (
            ("accurate", "mean |Q - return|", gaps),
            ("stable", "mean change of Q between evaluations", jumps),
        ):
            ours, theirs = (measure(part) for part in rows)
            result = compared(-ours, -theirs)
            verdicts.append(
                Verdict(
                    f"{env.removeprefix('mnm/')}: MnM-approx's Q is more {word} than MBPO's",
                    "more accurate and more stable; MBPO's peaks early",
                    f"{unit} {means(ours, 1)} against {means(theirs, 1)}, {result.measured}",
                    result.holds,
                    result.p_value,
                )
            )
    return verdicts


FIGURE = DeepFigure(
    "q_values",
    (RunGrid((DRAWER, SCREW_FIXED, SCREW_RANDOM, HALF_CHEETAH, POSE), AGENTS),),
    draw,
    judge,
)
