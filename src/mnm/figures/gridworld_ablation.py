"""Fig. stochastic gridworld ablation, with a control that the paper does not have.

The control is Q-learning in the real dynamics with MnM's logarithmic reward, (1-discount) log r: no optimistic
dynamics, no classifier. The rewards below 1 make all attainable Q-values negative, so that the usual start at
Q = 0 is optimistic and explores by itself; what MnM gains beyond the control is what its dynamics are worth.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mnm.analysis.statistics import is_significant, permutation_p_value, spread
from mnm.figures.base import Columns, PaperFigure, Verdict, draw_learning
from mnm.figures.gridworld_curves import SEEDS, final_returns, selected, solved_at, training_returns

CONTROL = "Q-learning, log reward"
METHODS = ("MnM", "MnM, no logarithm", "MnM, no classifier", CONTROL, "Q-learning")


def run() -> Columns:
    """The curves of MnM, its two ablations and the control."""
    return selected(*METHODS)


def draw(columns: Columns) -> Figure:
    """One panel of curves."""
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_learning(axes, columns, "method", "iteration")
    axes.set_xlabel("iteration (one 200-step episode and one batch pass each)")
    axes.set_title(f"Ablation (median and quartiles, {len(SEEDS)} seeds)")
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """The two ablations, and whether the optimistic dynamics explain MnM's advantage."""
    final = {method: final_returns(columns, method) for method in METHODS}
    times = {method: np.median(solved_at(columns, method)) for method in METHODS}
    training = {method: training_returns(columns, method) for method in METHODS}
    ratio = np.median(final["MnM, no classifier"]) / np.median(final["MnM"])
    return [
        Verdict(
            "The logarithm is crucial",
            "crucial",
            f"last return {spread(final['MnM, no logarithm'])} without, {spread(final['MnM'])} with",
            bool(final["MnM, no logarithm"].max() < 0.5 * final["MnM"].min()),
        ),
        Verdict(
            "Removing the classifier term has a small effect here",
            "relatively small, may even help",
            f"last return {ratio:.2f} times MnM's",
            bool(0.9 <= ratio <= 1.1),
        ),
        Verdict(
            "MnM learns faster because its dynamics are optimistic",
            "hypothesised",
            f"90% of optimal at iteration {times['MnM']:.0f}, with the log reward alone in the real dynamics at "
            f"{times[CONTROL]:.0f}; mean return over training {spread(training['MnM'])} against "
            f"{spread(training[CONTROL])}, p = {permutation_p_value(training['MnM'], training[CONTROL]):.3f}",
            is_significant(permutation_p_value(training["MnM"], training[CONTROL])),
        ),
        Verdict(
            "Q-learning with the correct model needs the optimistic dynamics to solve the task",
            "implied by the comparison",
            f"with the log reward it ends at {spread(final[CONTROL])} without them",
            bool(np.median(final[CONTROL]) < 0.9 * np.median(final["MnM"])),
        ),
    ]


FIGURE = PaperFigure("gridworld_ablation", "Ablation on the stochastic gridworld, with a control", run, draw, judge)
