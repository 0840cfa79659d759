"""VMBPO: the reward r + (1/temperature) log p/q, without a logarithm of r; an upper bound's optimistic model.

The model maximises discount temperature V + log p/q, the consistent pair of that reward; V in units of its spread,
since in those of reward it makes the model explode. The paper's form is a setting. As in MnM, a real row is a sample
of the model q = p, and log p/q is calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import td_steps, update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics, Positive
from mnm.agents.classifier import (
    OFFLINE,
    SETTINGS,
    AdversarialState,
    PricedConfig,
    calibrated,
    delayed,
    experience_ratios,
    init,
    sample_real,
    update_model_and_classifier,
    warm_up,
)
from mnm.agents.world_model import imagine, observe, sample_experience
from mnm.losses.reward import vmbpo_reward
from mnm.replay import Replay


@dataclass(frozen=True)
class VMBPOConfig(PricedConfig):
    """Settings of VMBPO."""

    risk_temperature: Positive = 1.0
    """How much of the return's spread the model may exploit; the paper has 1. In units of 1 / reward."""
    value_term: Literal["relative", "raw"] = "relative"
    """V in units of its standard deviation in the model's objective, or the paper's V."""


PRESETS = {scale: VMBPOConfig(**settings) for scale, settings in SETTINGS.items()}
PRESETS["paper"] = VMBPOConfig(**SETTINGS["paper"], value_term="raw")


def update(
    config: VMBPOConfig, state: AdversarialState, replay: Replay, update_step: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    key, *keys = jax.random.split(state.key, 10)
    batch_key, imagine_key, critics_key, ratio_key, noise_key, experience_key, policy_key, *keys = keys
    model_key, calibration_key = keys
    batch = sample_real(config, replay, batch_key)
    # Line 2: sample experience from the learned model.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    model_buffer = state.model_buffer.add(rows)

    # Line 3: modify the rewards with the classifier, without a logarithm.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    ratios = experience_ratios(config, state, experience, ratio_key)
    rewards = vmbpo_reward(experience.rewards, ratios, config.risk_temperature)
    # Line 4: update Q on it,
    modified = experience._replace(rewards=rewards)
    actor_critic, metrics = td_steps(config, state.actor_critic, modified, noise_key)
    # and the policy.
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Line 5: update model and classifier, which see Q and policy as they were.
    tilt = config.discount * config.risk_temperature
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, delayed(config, update_step, tilt), config.value_term, model_key
    )
    classifier = calibrated(config, world, state.actor_critic.actor, classifier, replay, calibration_key)
    metrics |= policy_metrics | model_metrics | {"trust": classifier.trust}
    return AdversarialState(actor_critic, world, model_buffer, key, classifier), metrics


ALGORITHM = Algorithm(
    "vmbpo",
    "VMBPO: MnM without the logarithm",
    PRESETS,
    init,
    observe,
    update,
    warm_up,
    has_model=True,
    has_classifier=True,
    offline=OFFLINE,
)
