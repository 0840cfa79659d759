"""Ours: the tight bound's deep agent against MnM and MnM-approx, on tasks with positive rewards.

Pendulum-v1's rewards are moved above 0. InvertedPendulum-v5's are 1, but what comes after an end pays the offset for
ever and must be positive too. DrawerOpen's are positive as they are.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import (
    DRAWER,
    INVERTED_PENDULUM,
    PENDULUM,
    DeepFigure,
    RunGrid,
    agents,
    both,
    compared,
    draw_agents,
    draw_lines,
    means,
    measured_mean,
    outperforms,
    rows_of_panels,
    seeds_of,
    tasks,
)
from mnm.plotting.style import AGENT_COLOURS, agent_name, legend_of_seeds

BOUNDS = ("mnm_tight", "mnm")


def with_gaps(columns: Columns) -> Columns:
    """The columns and `gap`: the log of the return obtained minus log Q; nan for agents whose Q is no bound."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = columns["log_return"] - np.log(columns["q_at_start"])
    return columns | {"gap": np.where(np.isin(columns["agent"], BOUNDS), gap, np.nan)}


def draw(columns: Columns) -> Figure:
    """Returns above; below, how far Q as a bound lies under the log of the return."""
    columns = with_gaps(columns)
    figure, axes = rows_of_panels(columns, 2, (3.4, 4.8))
    for (upper, lower), env in zip(axes.T, tasks(columns), strict=True):
        task_rows = where(columns, env=env)
        draw_agents(upper, task_rows, "return")
        for agent in agents(task_rows):
            if agent in BOUNDS:
                draw_lines(lower, where(task_rows, agent=agent), "gap", agent_name(agent), AGENT_COLOURS[agent])
        lower.axhline(0.0, color="0.6", linewidth=1, linestyle=":")
    axes[0, 0].set_ylabel("evaluation return")
    axes[1, 0].set_ylabel("log return - log Q (nats)")
    legend_of_seeds(axes[0, 0])
    return figure


def late_gaps(columns: Columns) -> NDArray:
    """For each seed, the mean over the second half of training of |log return - log Q|."""
    return np.array([measured_mean(np.abs(gap[len(gap) // 2 :])) for _, gap in seeds_of(with_gaps(columns), "gap")])


def judge(columns: Columns) -> list[Verdict]:
    """Returns, and how close the bounds are."""
    verdicts = [
        *outperforms(columns, "mnm_tight", "mnm", "left open"),
        *outperforms(columns, "mnm_tight", "mnm_approx", "left open"),
    ]
    for env, *rows in both(columns, *BOUNDS):
        tight, plain = map(late_gaps, rows)
        result = compared(-tight, -plain)
        verdicts.append(
            Verdict(
                f"{env.removeprefix('mnm/')}: MnM-tight's Q is closer to the log return than MnM's",
                "left open",
                f"|log return - log Q| {means(tight, 2)} against {means(plain, 2)} nats, {result.measured}",
                result.holds,
                result.p_value,
            )
        )
    return verdicts


FIGURE = DeepFigure(
    "tight_bound",
    (
        RunGrid((PENDULUM,), BOUNDS, ("--reward-offset 17",)),
        RunGrid((INVERTED_PENDULUM,), BOUNDS, ("--reward-offset 0.1",)),
        RunGrid((PENDULUM, INVERTED_PENDULUM), ("mnm_approx",)),
        RunGrid((DRAWER,), ("mnm_approx", *BOUNDS)),
    ),
    draw,
    judge,
)
