"""The honest curves: model and classifier learned from real transitions, real steps on the x axis."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mnm.analysis.statistics import is_significant, permutation_p_value, spread
from mnm.figures.base import Columns, PaperFigure, Verdict, by_seed, draw_learning, stacked, where
from mnm.tabular.from_data import LEARNERS, learn_from_data
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.solvers import optimal_return

SEEDS = range(5)
CONTROL = "Maximum likelihood, log reward"
SEEN = 50
"""The classifier is judged where it has at least this many real transitions."""


def run() -> Columns:
    """learner, seed, real steps, return; and, repeated, the optimum and the classifier's mean error."""
    mdp = stochastic_gridworld().mdp
    runs = learn_from_data(mdp, list(LEARNERS.values()), list(SEEDS))
    optimal = optimal_return(mdp)
    return stacked(
        *(
            {
                "learner": learner,
                "seed": seed,
                "real_steps": runs.real_steps,
                "return": runs.returns[i, seed],
                "optimal": optimal,
                "classifier_error": _classifier_error(
                    mdp.dynamics.probs, runs.model_probs[i, seed], runs.logits[i, seed], runs.counts[i, seed]
                ),
            }
            for i, learner in enumerate(LEARNERS)
            for seed in SEEDS
        )
    )


def _classifier_error(real: np.ndarray, model: np.ndarray, logits: np.ndarray, counts: np.ndarray) -> float:
    """Mean |logit - log p/q| over the transitions that were often seen."""
    often = (counts >= SEEN) & (model > 0)
    return float(np.abs(logits[often] - np.log(real[often] / model[often])).mean())


def draw(columns: Columns) -> Figure:
    """One panel of curves."""
    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.subplots()
    draw_learning(axes, columns, "learner", "real_steps")
    axes.set_xlabel("real environment steps")
    axes.set_title(f"Learned from real transitions (median and quartiles, {len(SEEDS)} seeds)")
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """What learning everything costs, and how good the learned classifier is."""
    final = {name: by_seed(where(columns, learner=name), "real_steps", "return")[1][:, -1] for name in LEARNERS}
    training = {
        name: by_seed(where(columns, learner=name), "real_steps", "return")[1].mean(axis=1) for name in LEARNERS
    }
    p = permutation_p_value(training["MnM"], training[CONTROL])
    error = where(columns, learner="MnM")["classifier_error"].mean()
    steps, optimal = columns["real_steps"].max(), columns["optimal"][0]
    return [
        Verdict(
            "MnM solves the gridworld with model and classifier learned from real steps (ours)",
            "-",
            f"return {spread(final['MnM'])} of {optimal:.4f} after {steps:.0f} real steps; Q-learning "
            f"{spread(final['Q-learning'])}, maximum likelihood {spread(final['Maximum likelihood'])}, "
            f"VMBPO {spread(final['VMBPO'])}",
            bool(np.median(final["MnM"]) > 0.8 * optimal),
        ),
        Verdict(
            "MnM's model learns faster than a likelihood model with the same log reward (ours)",
            "-",
            f"mean return over training {spread(training['MnM'])} against {spread(training[CONTROL])}, p = {p:.3f}; "
            f"at the end {spread(final['MnM'])} against {spread(final[CONTROL])}",
            is_significant(p),
        ),
        Verdict(
            "The learned classifier's logit estimates log p/q (ours)",
            "the bound needs a Bayes-optimal classifier",
            f"mean error {error:.3f} where it has at least {SEEN} transitions",
            bool(error < 0.15),
        ),
    ]


FIGURE = PaperFigure("from_real_data", "Honest curves: everything learned from real steps", run, draw, judge)
