"""MnM: policy and model maximise one lower bound on the log of the expected return.

The consistent pair of the sharper bound: log p/q has weight `discount` in the reward, and the model maximises
log p/q + V, the paper's printed objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
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
from mnm.losses.reward import absorbing_log_value, mnm_reward, td_target
from mnm.replay import Replay


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
    """One update of everything: Algorithm 1, whose lines are named."""
    key, batch_key, ratio_key, policy_key, model_key = jax.random.split(state.key, 5)
    imagine_key, experience_key, value_key, actor_key = jax.random.split(policy_key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    # Line 2: sample experience from the learned model.
    imagined = state.imagined.add(imagine(config, state.world, state.actor_critic.policy, batch, imagine_key))
    experience = imagined.sample(experience_key, config.batch_size)
    values = next_values(state.actor_critic, experience.next_observations, value_key)
    # Line 3: modify the rewards with the classifier.
    ratios = log_ratios(config, state.world, state.classifier, experience, ratio_key)
    rewards = mnm_reward(
        experience.rewards + config.reward_offset, ratios, config.discount, ratio_weight=config.discount
    )
    if config.reward_offset == 0.0:  # then no episode may end, see `ends_need_offset`
        targets = td_target(rewards, jnp.ones_like(rewards), values, config.discount)
    else:
        end = absorbing_log_value(config.reward_offset, config.discount)
        targets = td_target(rewards, experience.continues, values, config.discount, end)
    # Line 4: update Q and policy on it.
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, experience.observations, experience.actions, targets, actor_key
    )
    # Line 5: update model and classifier, which see Q and policy as they were.
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, number, model_key, lambda values: values
    )
    return AdversarialState(actor_critic, world, imagined, key, classifier), metrics | model_metrics


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
