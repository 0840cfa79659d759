"""The learning curves that two figures share: every method on the stochastic gridworld, five seeds, once."""

from __future__ import annotations

from functools import cache

import numpy as np

from mnm.figures.base import Columns, by_seed, stacked, where
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.q_learning import METHODS, Run, learn
from mnm.tabular.solvers import optimal_return

SEEDS = range(5)
SOLVED = 0.9
"""A run has solved the task from when it first has this share of the optimal return."""


@cache
def gridworld_curves() -> Columns:
    """method, seed, iteration, return (and the optimal return, repeated)."""
    mdp = stochastic_gridworld().mdp
    names = [(name, seed) for name in METHODS for seed in SEEDS]
    curves = learn([Run(mdp, METHODS[name], seed) for name, seed in names])
    optimal = optimal_return(mdp)
    return stacked(
        *(
            {
                "method": name,
                "seed": seed,
                "iteration": curves.iterations,
                "return": returns,
                "optimal": optimal,
            }
            for (name, seed), returns in zip(names, curves.returns, strict=True)
        )
    )


def selected(*methods: str) -> Columns:
    """The curves of some methods."""
    curves = gridworld_curves()
    keep = np.isin(curves["method"], methods)
    return {name: column[keep] for name, column in curves.items()}


def final_returns(columns: Columns, method: str) -> np.ndarray:
    """The last return of every seed."""
    return by_seed(where(columns, method=method), "iteration", "return")[1][:, -1]


def solved_at(columns: Columns, method: str) -> np.ndarray:
    """The iteration at which every seed first has 90% of the optimal return; infinity where it never does."""
    iterations, returns = by_seed(where(columns, method=method), "iteration", "return")
    solved = returns >= SOLVED * columns["optimal"][0]
    return np.where(solved.any(axis=1), iterations[solved.argmax(axis=1)], np.inf)


def training_returns(columns: Columns, method: str) -> np.ndarray:
    """The return averaged over training, of every seed: how fast and how far it learned."""
    return by_seed(where(columns, method=method), "iteration", "return")[1].mean(axis=1)
