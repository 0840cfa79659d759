"""What goes wrong while an agent learns, said early: which part, and what to try."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnm.training.learner import Row

LOSSES = {
    "critic_loss": ("the critics", "a smaller --learning-rate, or rewards of smaller size"),
    "actor_loss": ("the policy", "a smaller --learning-rate, or rewards of smaller size"),
    "model_loss": (
        "the dynamics model",
        "a smaller --learning-rate, or a later --value-term-start for adversarial ones",
    ),
    "reward_loss": ("the reward network", "a smaller --learning-rate"),
    "continue_loss": ("the continuation network", "a smaller --learning-rate"),
    "classifier_loss": ("the classifier", "more --input-noise, or a smaller --learning-rate"),
}
EXPLODED = 1e4
"""A loss so many times its usual size has exploded."""
PERFECT, PERFECT_ROWS = 0.99, 5
"""A classifier that accurate in so many evaluations on end tells the model nothing."""


class DivergedError(ArithmeticError):
    """Numbers that are no numbers any more."""


class DivergenceMonitor:
    """Looks at every row of one run; says each thing once, and again only after it had passed."""

    def __init__(self) -> None:
        self._usual: dict[str, list[float]] = defaultdict(list)
        self._perfect = 0
        self._said: set[str] = set()

    def warnings(self, row: Row) -> list[str]:
        """What is wrong now and was not before, one line each."""
        problems: dict[str, str] = {}
        for name, (part, remedy) in LOSSES.items():
            if name in row and math.isfinite(row[name]):
                usual = float(np.median(self._usual[name])) if len(self._usual[name]) >= 3 else math.inf
                if abs(row[name]) > EXPLODED * max(usual, 1e-3):
                    problems[name] = f"{part}: {name} is {row[name]:.3g}, usually {usual:.3g}: try {remedy}"
                self._usual[name].append(abs(row[name]))
        error, constant = row.get("model_error_1"), row.get("constant_error_1")
        if error is not None and constant is not None and not error <= constant:
            problems["model"] = (
                f"the dynamics model: its error on held-out transitions ({error:.3g}) exceeds that of always"
                f" moving by the mean change ({constant:.3g}): try more --warmup-updates, more data, or, for agents"
                " with a value term, a later --value-term-start"
            )
        self._perfect = self._perfect + 1 if row.get("classifier_accuracy", 0.0) >= PERFECT else 0
        if self._perfect >= PERFECT_ROWS:
            problems["classifier"] = (
                f"the classifier: it tells real transitions from the model's with accuracy"
                f" {row['classifier_accuracy']:.3f}, and has for {self._perfect} evaluations, so that the model"
                " learns nothing from it: try more --input-noise, more --smoothing, or a larger model"
            )
        new = [text for name, text in problems.items() if name not in self._said]
        self._said = set(problems)
        return new


def check_losses(row: Row) -> None:
    """Raise DivergedError if a loss is no number, or infinite: Adam divides by its square, and nothing moves again."""
    for name, (part, remedy) in LOSSES.items():
        if not math.isfinite(row.get(name, 0.0)):
            raise DivergedError(f"{part}: {name} is {row[name]}: try {remedy}")


def check_numbers(state: Any) -> None:
    """Raise DivergedError, which names the part, if a number of an agent is none."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and np.isnan(leaf).any():
            place = jax.tree_util.keystr(path, simple=True, separator=".")
            raise DivergedError(f"{place} is nan: try a smaller --learning-rate, or rewards of smaller size")
