"""Does a model that is trained like a GAN train stably? Its validation error by seed, and the likelihood model's best.

Both errors are on the agent's own latest evaluation episodes, so on different data for different agents: beside
the error itself the verdicts look at its ratio to the error of a constant predictor on the same data.
"""

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
    Grid,
    compared,
    means,
    measured_mean,
    panels,
    seeds_of,
    tasks,
)
from mnm.figures.style import AGENT_COLOURS, BLACK

MODEL, LIKELIHOOD = "mnm_approx", "mbpo"
WANDERED = 2.0
"""A model that ends above so many times its own lowest error has not trained stably."""


def draw(columns: Columns) -> Figure:
    """A line for each seed of MnM-approx; dashed, the lowest error of the likelihood model, averaged over seeds."""
    figure, axes = panels(columns)
    for panel, env in zip(axes, tasks(columns), strict=True):
        rows = where(columns, env=env, agent=MODEL)
        for number, (steps, errors) in enumerate(seeds_of(rows, "model_error_1")):
            label = MODEL if number == 0 else None
            panel.plot(steps, errors, color=AGENT_COLOURS[MODEL], alpha=0.4 + 0.2 * number % 0.6, label=label)
        best = lowest(where(columns, env=env, agent=LIKELIHOOD))
        if best.size:
            panel.axhline(best.mean(), color=BLACK, linestyle="--", linewidth=1, label=f"{LIKELIHOOD}'s lowest")
        if (rows["model_error_1"] > 0).any():  # something has been measured
            panel.set_yscale("log")
    axes[0].set_ylabel("validation error (whitened)")
    axes[0].legend()
    return figure


def lowest(columns: Columns) -> NDArray:
    """The lowest error of each seed once the policy has begun to learn."""
    learning = (errors[1:] for _, errors in seeds_of(columns, "model_error_1"))
    return np.array([np.fmin.reduce(errors, initial=np.nan) for errors in learning])


def relative(columns: Columns) -> NDArray:
    """For each seed, the mean over the second half of training of the error over the constant predictor's."""
    shares = columns | {"share": columns["model_error_1"] / columns["constant_error_1"]}
    return np.array([measured_mean(values[len(values) // 2 :]) for _, values in seeds_of(shares, "share")])


def judge(columns: Columns) -> list[Verdict]:
    """Stable by seed; and as good as the likelihood model, both against a constant predictor."""
    verdicts = []
    for env in tasks(columns):
        name = env.removeprefix("mnm/")
        ours, theirs = (where(columns, env=env, agent=agent) for agent in (MODEL, LIKELIHOOD))
        if len(ours["step"]):
            ends = np.array([errors[-1] for _, errors in seeds_of(ours, "model_error_1")])
            ratios = ends / lowest(ours)
            stable = int((ratios <= WANDERED).sum())
            verdicts.append(
                Verdict(
                    f"{name}: mnm_approx's model trains stably",
                    "stably; on DrawerOpen 3 of 5 seeds",
                    f"{stable} of {len(ends)} seeds end within {WANDERED:g} times their lowest error,"
                    f" last error {means(ends, 3)}",
                    stable == len(ends),
                )
            )
        if len(ours["step"]) and len(theirs["step"]):
            shares = relative(ours), relative(theirs)
            holds, p = compared(-shares[0], -shares[1])
            verdicts.append(
                Verdict(
                    f"{name}: mnm_approx's model is more accurate than mbpo's",
                    "likely more accurate on the robot hand; close to it on ScrewFixed",
                    f"error over a constant predictor's {means(shares[0], 2)} against {means(shares[1], 2)}, {p}",
                    holds,
                )
            )
    return verdicts


FIGURE = DeepFigure(
    "model_stability",
    (Grid((SCREW_RANDOM, SCREW_FIXED, DRAWER, HALF_CHEETAH, POSE), (MODEL, LIKELIHOOD)),),
    draw,
    judge,
)
