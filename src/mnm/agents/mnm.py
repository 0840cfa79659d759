"""MnM: policy and model maximise one lower bound on the log of the expected return.

The consistent pair of the sharper bound: log p/q has weight `discount` in the reward, and the model maximises
log p/q + V, the paper's printed objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
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
from mnm.losses.reward import absorbing_log_value, mnm_reward, td_target
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class MnMConfig(AdversarialConfig):
    """Settings of MnM."""

    reward_offset: float = 0.0
    """Added to every reward: the logarithm needs them positive. After an episode's end it is all that is paid."""
    initial_temperature: float = 0.01
    """The entropy's weight at the start; it is learned. Rewards are (1-discount) log r here, so it is small too."""


PRESETS = {scale: MnMConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: MnMConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything."""
    return update_with(targets, lambda values: values, config, state, replay, number)


def targets(
    config: MnMConfig,
    state: AdversarialState,
    experience: Transitions,
    values: Float[Array, " batch"],
    key: PRNGKeyArray,
) -> Float[Array, " batch"]:
    """(1-discount) log r + discount log p/q + ... + discount V(s')."""
    rewards = mnm_reward(
        experience.rewards + config.reward_offset,
        log_ratios(config, state.world, state.classifier, experience, key),
        config.discount,
        ratio_weight=config.discount,
    )
    if config.reward_offset == 0.0:  # then no episode may end, see `ends_need_offset`
        return td_target(rewards, jnp.ones_like(rewards), values, config.discount)
    end = absorbing_log_value(config.reward_offset, config.discount)
    return td_target(rewards, experience.continues, values, config.discount, end)


ALGORITHM = Algorithm(
    "mnm",
    "MnM: one lower bound for model and policy",
    PRESETS,
    init,
    update,
    warm_up,
    prepare,
    log_returns=True,
    ends_need_offset=True,
)
