"""The figures of the paper and ours, one module each; `mnm reproduce` makes them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnm.figures.base import PaperFigure
    from mnm.figures.deep import DeepFigure

EXACT = {
    "stochastic_gridworld": "learning curves of MnM, Q-learning and VMBPO (5 seeds)",
    "gridworld_ablation": "MnM without the logarithm, without the classifier; a control of ours",
    "optimistic_dynamics": "what MnM's model adds to the real noise, as arrows",
    "aliased_model": "planning with a model that cannot see the wall: paths and values",
    "three_states": "MnM maximises the return, VMBPO seeks risk",
    "comparing_objectives": "the whole ladder of bounds while policy and model improve",
    "dynamics_transfer": "MnM's dynamics transferred to the goals A, B, C",
    "goal_reaching": "the bound for goal reaching, as printed and as corrected",
    "from_real_data": "ours: model and classifier learned from real steps",
    "certificate": "ours: what data and episodes guarantee of a return, and what they only promise",
}
DEEP = {
    "gym_benchmark": "HalfCheetah, Hopper, Walker2d: MnM-approx, MBPO, VMBPO, SAC",
    "dclaw_benchmark": "the robot hand's four tasks, return and success: MnM-approx, MBPO, SAC",
    "model_objectives": "ScrewFixed: MnM-approx, MBPO, VAML, value-weighted likelihood",
    "imagined_rollouts": "Pusher, HalfCheetah: how far the models run ahead of reality; videos",
    "retrained_models": "ours: who leans towards reward? Models of three objectives from the same data",
    "q_values": "model exploitation: Q against the return obtained, MnM-approx and MBPO",
    "model_stability": "the adversarial model's error by seed, the likelihood model's best",
    "classifier_term": "DrawerOpen: MnM against MnM-approx",
    "model_horizon": "DrawerOpen: MnM-approx with 1, 2, 3 and 5 steps in the model",
    "tight_bound": "ours: MnM-tight against MnM and MnM-approx, on positive rewards",
    "eight_agents": "ours: all eight agents on Pendulum-v1",
}
RENAMED = {"honest_curves": "from_real_data"}
"""Figures that version 0.1 called otherwise."""
FIGURES = EXACT | DEEP
"""What each figure shows, by name, in the order of the paper: those that are exact, and those that need runs."""
SCALES = ("quick", "cpu", "paper")


def load(name: str) -> PaperFigure | DeepFigure:
    """A figure by name; its module, and what that imports, is loaded only now."""
    figure: PaperFigure | DeepFigure = import_module(f"mnm.figures.{name}").FIGURE
    return figure


def titles() -> dict[str, str]:
    """What each figure shows by the name of its files, which for a deep one tells the scale."""
    return EXACT | {f"{name}-{scale}": f"{title} (scale {scale})" for name, title in DEEP.items() for scale in SCALES}
