"""Ours: all eight agents on Pendulum-v1, a task that a few minutes solve."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import PENDULUM, DeepFigure, RunGrid, agents, draw_agents, last, means, steps_to
from mnm.plotting.style import BLACK, agent_name, legend_of_seeds

SOLVED = -200.0
"""A mean evaluation return at which the pole is swung up and stays there."""
PLAIN = ("sac", "mbpo", "mnm_approx", "vmbpo", "vaml", "value_weighted")
LOGARITHMIC = ("mnm", "mnm_tight")


def draw(columns: Columns) -> Figure:
    """Two panels, so that eight agents can be told apart: the plain three, and the others."""
    first = np.isin(columns["agent"], PLAIN[:3])
    groups = [chosen for chosen in (first, ~first) if chosen.any()]
    figure = Figure(figsize=(4.2 * len(groups), 3.9), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for panel, chosen in zip(axes, groups, strict=True):
        draw_agents(panel, {name: column[chosen] for name, column in columns.items()}, "return")
        panel.axhline(SOLVED, color=BLACK, linestyle=":", linewidth=1, label=f"solved ({SOLVED:g})")
        panel.set(title=PENDULUM, xlabel="real steps")
        legend_of_seeds(panel, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    axes[0].set_ylabel("evaluation return")
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Each agent: does every seed end at the mark?"""
    verdicts = []
    for agent in agents(columns):
        rows = where(columns, agent=agent)
        ends = last(rows, "return")
        firsts = [f"{step:.0f}" if np.isfinite(step) else "never" for step in steps_to(rows, SOLVED)]
        verdicts.append(
            Verdict(
                f"{agent_name(agent)} solves {PENDULUM} (return {SOLVED:g}) with every seed",
                "-",
                f"last return {means(ends)}; first there at step {', '.join(firsts)}",
                bool((ends >= SOLVED).all()),
            )
        )
    return verdicts


FIGURE = DeepFigure(
    "eight_agents",
    (RunGrid((PENDULUM,), PLAIN), RunGrid((PENDULUM,), LOGARITHMIC, ("--reward-offset 17",))),
    draw,
    judge,
)
