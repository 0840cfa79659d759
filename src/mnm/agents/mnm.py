"""MnM: policy and model maximise one lower bound on the log of the expected return.

The consistent pair of the sharper bound: log p/q has weight `discount` in the reward, and the model maximises
log p/q + V, the paper's printed objective.

Beyond the paper:
- A share of the critics' rows is real. A real s' is a sample of the model q = p, whose log p/q is 0, and a mixture of
  two models' backups, each a lower bound, is a lower bound.
- In the reward stands the mean of log p/q given (s, a) over samples of the model (`expected_log_ratio`), not log p/q at
  one of them. Read at one sample, the classifier's errors are seventeen times louder than (1-discount) log r. The bound
  is then one up to what `expected_log_ratio` forgives; with `ratio_samples` 1 nothing is forgiven.
- It is believed as far as held-out transitions bear it out (`calibrated`).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mnm.agents.actor_critic import td_steps, update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics, NonNegative
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
from mnm.agents.world_model import imagine, observe_with_reward, sample_experience
from mnm.losses.reward import absorbing_log_value, mnm_reward
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class MnMConfig(PricedConfig):
    """Settings of MnM."""

    reward_offset: NonNegative = 0.0
    """Added to every reward: the logarithm needs them positive. After an episode's end it is all that is paid."""


PRESETS = {scale: MnMConfig(**settings) for scale, settings in SETTINGS.items()}
PRESETS["paper"] = MnMConfig(**SETTINGS["paper"] | {"initial_temperature": 0.01})


def observe(config: MnMConfig, state: AdversarialState, transition: Transitions) -> AdversarialState:
    """The agent with its statistics moved by one real transition; its critics learn from (1-discount) log r.

    An end is worth a logarithm too: to the mean value it is a step as any other.
    """
    reward = mnm_reward(transition.rewards + config.reward_offset, jnp.zeros(()), config.discount, ratio_weight=0.0)
    return observe_with_reward(config, state, transition, reward, jnp.ones(()))


def update(
    config: MnMConfig, state: AdversarialState, replay: Replay, update_step: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    key, *keys = jax.random.split(state.key, 10)
    batch_key, imagine_key, critics_key, ratio_key, noise_key, experience_key, policy_key, *keys = keys
    model_key, calibration_key = keys
    batch = sample_real(config, replay, batch_key)
    # Line 2: sample experience from the learned model.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    model_buffer = state.model_buffer.add(rows)

    # Line 3: modify the rewards with the classifier.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    ratios = experience_ratios(config, state, experience, ratio_key)
    lowest = state.world.statistics.rewards.lowest[0]  # a predicted reward may be lower: no logarithm shall meet it
    rewards = jnp.maximum(experience.rewards, lowest) + config.reward_offset
    rewards = mnm_reward(rewards, ratios, config.discount, ratio_weight=config.discount)
    if config.reward_offset == 0.0:  # then no episode may end, see `ends_need_offset`
        modified, end = experience._replace(rewards=rewards, continues=jnp.ones_like(rewards)), jnp.zeros(())
    else:
        modified = experience._replace(rewards=rewards)
        end = absorbing_log_value(config.reward_offset, config.discount)
    # Line 4: update Q on it,
    actor_critic, metrics = td_steps(config, state.actor_critic, modified, noise_key, end)
    # and the policy.
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Line 5: update model and classifier, which see Q and policy as they were.
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, delayed(config, update_step), "raw", model_key
    )
    classifier = calibrated(config, world, state.actor_critic.actor, classifier, replay, calibration_key)
    metrics |= policy_metrics | model_metrics | {"trust": classifier.trust}
    return AdversarialState(actor_critic, world, model_buffer, key, classifier), metrics


ALGORITHM = Algorithm(
    "mnm",
    "MnM: one lower bound for model and policy",
    PRESETS,
    init,
    observe,
    update,
    warm_up,
    has_model=True,
    has_classifier=True,
    offline=OFFLINE,
    log_returns=True,
    ends_need_offset=True,
)
