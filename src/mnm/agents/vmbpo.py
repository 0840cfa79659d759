"""VMBPO: the reward r + (1/temperature) log p/q, without a logarithm of r; an upper bound's optimistic model.

The model maximises discount V + (1/temperature) log p/q, the consistent pair of that reward.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.adversarial import (
    SETTINGS,
    AdversarialConfig,
    AdversarialState,
    init,
    log_ratios,
    prepare,
    update_with,
    warm_up,
)
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.losses.reward import td_target, vmbpo_reward
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class VMBPOConfig(AdversarialConfig):
    """Settings of VMBPO."""

    risk_temperature: float = 1.0
    """How much of the return's spread the model may exploit; the paper has 1. In units of 1 / reward."""


PRESETS = {scale: VMBPOConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: VMBPOConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything."""
    tilt = config.discount * config.risk_temperature
    return update_with(targets, lambda values: tilt * values, config, state, replay, number)


def targets(
    config: VMBPOConfig,
    state: AdversarialState,
    experience: Transitions,
    values: Float[Array, " batch"],
    key: PRNGKeyArray,
) -> Float[Array, " batch"]:
    """r + (1/temperature) log p/q + discount V(s')."""
    rewards = vmbpo_reward(
        experience.rewards, log_ratios(config, state.world, state.classifier, experience, key), config.risk_temperature
    )
    return td_target(rewards, experience.continues, values, config.discount)


ALGORITHM = Algorithm("vmbpo", "VMBPO: MnM without the logarithm", PRESETS, init, update, warm_up, prepare)
