"""MnM-approx: MnM's model and classifier, but Q and policy learn from the plain reward.

V is then in units of reward, and V + log p/q would mix units. The value term is V / mean |V|, free of scale; the
paper's raw V is a setting, and makes the model explode where returns are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.adversarial import (
    SETTINGS,
    AdversarialConfig,
    AdversarialState,
    init,
    prepare,
    update_with,
    warm_up,
)
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.losses.model import relative_values
from mnm.losses.reward import td_target
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class MnMApproxConfig(AdversarialConfig):
    """Settings of MnM-approx."""

    value_term: Literal["relative", "raw"] = "relative"
    """V / mean |V| in the model's objective, or the paper's V."""


PRESETS = {scale: MnMApproxConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: MnMApproxConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything."""
    value_term = relative_values if config.value_term == "relative" else lambda values: values
    return update_with(targets, value_term, config, state, replay, number)


def targets(
    config: AdversarialConfig,
    _: AdversarialState,
    experience: Transitions,
    values: Float[Array, " batch"],
    __: PRNGKeyArray,
) -> Float[Array, " batch"]:
    """r + discount V(s')."""
    return td_target(experience.rewards, experience.continues, values, config.discount)


ALGORITHM = Algorithm(
    "mnm_approx", "MnM's model with the plain reward for the policy", PRESETS, init, update, warm_up, prepare
)
