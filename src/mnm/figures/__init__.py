"""The paper's figures, one module each; `mnm reproduce` makes them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnm.figures.base import PaperFigure

FIGURES = {
    "stochastic_gridworld": "learning curves of MnM, Q-learning and VMBPO (5 seeds)",
    "gridworld_ablation": "MnM without the logarithm, without the classifier; a control of ours",
    "optimistic_dynamics": "what MnM's model adds to the real noise, as arrows",
    "aliased_model": "planning with a model that cannot see the wall: paths and values",
    "three_states": "MnM maximises the return, VMBPO seeks risk",
    "comparing_objectives": "the whole ladder of bounds while policy and model improve",
    "dynamics_transfer": "MnM's dynamics transferred to the goals A, B, C",
    "goal_reaching": "the bound for goal reaching, as printed and as corrected",
    "honest_curves": "ours: model and classifier learned from real steps",
}
"""What each figure shows, by name, in the order of the paper."""


def load(name: str) -> PaperFigure:
    """A figure by name; its module, and what that imports, is loaded only now."""
    figure: PaperFigure = import_module(f"mnm.figures.{name}").FIGURE
    return figure
