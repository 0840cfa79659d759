"""VMBPO: the reward r + (1/temperature) log p/q, without a logarithm of r; an upper bound's optimistic model.

The model maximises discount V + (1/temperature) log p/q, the consistent pair of that reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import next_values, update_actor_critic
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.classifier import (
    SETTINGS,
    AdversarialConfig,
    AdversarialState,
    init,
    log_ratios,
    prepare,
    update_model_and_classifier,
    warm_up,
)
from mnm.agents.world_model import imagine
from mnm.losses.reward import td_target, vmbpo_reward
from mnm.replay import Replay


@dataclass(frozen=True)
class VMBPOConfig(AdversarialConfig):
    """Settings of VMBPO."""

    risk_temperature: float = 1.0
    """How much of the return's spread the model may exploit; the paper has 1. In units of 1 / reward."""


PRESETS = {scale: VMBPOConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: VMBPOConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    key, batch_key, ratio_key, policy_key, model_key = jax.random.split(state.key, 5)
    imagine_key, experience_key, value_key, actor_key = jax.random.split(policy_key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    # Line 2: sample experience from the learned model.
    imagined = state.imagined.add(imagine(config, state.world, state.actor_critic.policy, batch, imagine_key))
    experience = imagined.sample(experience_key, config.batch_size)
    values = next_values(state.actor_critic, experience.next_observations, value_key)
    # Line 3: modify the rewards with the classifier, without a logarithm.
    ratios = log_ratios(config, state.world, state.classifier, experience, ratio_key)
    rewards = vmbpo_reward(experience.rewards, ratios, config.risk_temperature)
    targets = td_target(rewards, experience.continues, values, config.discount)
    # Line 4: update Q and policy on it.
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, experience.observations, experience.actions, targets, actor_key
    )
    # Line 5: update model and classifier, which see Q and policy as they were.
    tilt = config.discount * config.risk_temperature
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, number, model_key, lambda values: tilt * values
    )
    return AdversarialState(actor_critic, world, imagined, key, classifier), metrics | model_metrics


ALGORITHM = Algorithm("vmbpo", "VMBPO: MnM without the logarithm", PRESETS, init, update, warm_up, prepare)
