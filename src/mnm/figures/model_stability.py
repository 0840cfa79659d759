"""Does a model that is trained like a GAN train stably? Its validation error by seed, and the likelihood model's best.

The validation data are the agent's own latest evaluation episodes. A policy that still lies down is easier to
predict than one that runs, so every error is divided by that of a constant predictor on the same data: 1 is a model
that knows nothing. The paper's plain error is drawn below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
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
    compared,
    means,
    measured_mean,
    rows_of_panels,
    seeds_of,
    tasks,
)
from mnm.plotting.style import AGENT_COLOURS, BLACK, agent_name

MODEL, LIKELIHOOD = "mnm_approx", "mbpo"
NAME, RIVAL = agent_name(MODEL), agent_name(LIKELIHOOD)
WANDERED = 2.0
"""A model that ends above so many times its own lowest error has not trained stably."""


class PlainLogFormatter(LogFormatter):
    """Labels the ticks that matplotlib would label, as plain numbers."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Empty where there are too many."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def errors(columns: Columns, env: str, agent: str) -> list[tuple[NDArray, NDArray]]:
    """For each seed of an agent on a task: steps, and the model's error in units of the normalized change."""
    return seeds_of(where(columns, env=env, agent=agent), "model_error_1")


def shares(columns: Columns, env: str, agent: str) -> list[tuple[NDArray, NDArray]]:
    """The same over the constant predictor's error."""
    rows = where(columns, env=env, agent=agent)
    with np.errstate(divide="ignore", invalid="ignore"):  # a state that never moves is predicted without error
        share = rows["model_error_1"] / rows["constant_error_1"]
    return seeds_of(rows | {"share": share}, "share")


def lowest(lines: Sequence[tuple[NDArray, NDArray]]) -> NDArray:
    """The lowest of each seed."""
    return np.array([np.fmin.reduce(values, initial=np.nan) for _, values in lines])


def late(lines: Sequence[tuple[NDArray, NDArray]]) -> NDArray:
    """The mean of each seed over the second half of its training."""
    return np.array([measured_mean(values[len(values) // 2 :]) for _, values in lines])


def at_end(lines: Sequence[tuple[NDArray, NDArray]]) -> NDArray:
    """The last of each seed."""
    return np.array([values[-1] for _, values in lines])


def stable_seeds(lines: Sequence[tuple[NDArray, NDArray]]) -> int:
    """How many seeds' models end near their own lowest error."""
    return int((at_end(lines) <= WANDERED * lowest(lines)).sum())


def draw(columns: Columns) -> Figure:
    """A column for each task: the error over a constant predictor's above, the plain one below."""
    figure, axes = rows_of_panels(columns, 2, (3.4, 4.8))
    for column, env in zip(axes.T, tasks(columns), strict=True):
        for panel, measure in zip(column, (shares, errors), strict=True):
            draw_errors(panel, measure(columns, env, MODEL), measure(columns, env, LIKELIHOOD))
    axes[0, 0].set_ylabel("validation error, relative")
    axes[1, 0].set_ylabel("validation error")
    axes[0, 0].legend()
    return figure


def draw_errors(
    panel: Axes, ours: Sequence[tuple[NDArray, NDArray]], theirs: Sequence[tuple[NDArray, NDArray]]
) -> None:
    """A line for each seed of MnM-approx; dashed, the lowest error of the likelihood model, averaged over seeds."""
    for number, (steps, values) in enumerate(ours):
        label = f"{NAME}, each seed" if number == 0 else None
        panel.plot(steps, values, color=AGENT_COLOURS[MODEL], alpha=0.7, linewidth=1.2, label=label)
    if theirs:
        label = f"{RIVAL}'s lowest, mean over seeds"
        panel.axhline(lowest(theirs).mean(), color=BLACK, linestyle="--", linewidth=1, label=label)
    if any((values > 0).any() for _, values in ours):  # something has been measured
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(PlainLogFormatter())


def judge(columns: Columns) -> list[Verdict]:
    """Stable by seed; and as good as the likelihood model."""
    verdicts = []
    for env in tasks(columns):
        name = env.removeprefix("mnm/")
        ours, theirs = shares(columns, env, MODEL), shares(columns, env, LIKELIHOOD)
        if ours:
            stable = stable_seeds(ours)
            rival = f"; {RIVAL}'s {stable_seeds(theirs)} of {len(theirs)}" if theirs else ""
            verdicts.append(
                Verdict(
                    f"{name}: {NAME}'s model trains stably",
                    "stably; on DrawerOpen 3 of 5 seeds",
                    f"{stable} of {len(ours)} seeds end within {WANDERED:g} times their lowest error{rival}; at the"
                    f" end {means(at_end(ours), 3)} of a constant predictor's",
                    stable == len(ours),
                )
            )
        if ours and theirs:
            scores = late(ours), late(theirs)
            result = compared(-scores[0], -scores[1])
            verdicts.append(
                Verdict(
                    f"{name}: {NAME}'s model is more accurate than {RIVAL}'s",
                    "likely more accurate on the robot hand; close to it on ScrewFixed",
                    f"error over a constant predictor's {means(scores[0], 3)} against {means(scores[1], 3)},"
                    f" {result.measured}; plain error {means(late(errors(columns, env, MODEL)), 3)} against"
                    f" {means(late(errors(columns, env, LIKELIHOOD)), 3)}",
                    result.holds,
                    result.p_value,
                )
            )
    return verdicts


FIGURE = DeepFigure(
    "model_stability",
    (RunGrid((SCREW_RANDOM, SCREW_FIXED, DRAWER, HALF_CHEETAH, POSE), (MODEL, LIKELIHOOD)),),
    draw,
    judge,
)
