"""Longer rollouts in the model: MnM-approx on DrawerOpen with 1, 2, 3 and 5 steps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import DRAWER, DeepFigure, RunGrid, compared, draw_lines, last, means, panels
from mnm.plotting.style import legend_of_seeds

HORIZONS = (1, 2, 3, 5)


def draw(columns: Columns) -> Figure:
    """A curve for each horizon."""
    figure, (panel,) = panels(columns, width=4.2)
    lengths = np.unique(columns["rollout_length"])
    for length, colour in zip(lengths, colormaps["viridis"](np.linspace(0.3, 0.85, len(lengths))), strict=True):
        draw_lines(panel, where(columns, rollout_length=length), "return", f"{length:.0f}", colour)
    panel.set_ylabel("evaluation return")
    legend_of_seeds(panel, title="steps in the model")
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Uniformly worse: every longer horizon has a lower mean than the one before it."""
    scores = [last(where(columns, rollout_length=length), "return") for length in np.unique(columns["rollout_length"])]
    falling = all(longer.mean() < shorter.mean() for shorter, longer in pairwise(scores))
    shortest = compared(scores[0], scores[-1])
    return [
        Verdict(
            "DrawerOpen: a longer model horizon is worse",
            "it uniformly degrades performance",
            f"last returns {', '.join(means(score, 1) for score in scores)}; tested: that the shortest is better than"
            f" the longest, {shortest.measured}",
            False if shortest.holds is False else True if shortest.holds and falling else None,
            shortest.p_value,
        )
    ]


FIGURE = DeepFigure(
    "model_horizon",
    (RunGrid((DRAWER,), ("mnm_approx",), ("", *(f"--rollout-length {length}" for length in HORIZONS[1:]))),),
    draw,
    judge,
)
