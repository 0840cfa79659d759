"""MnM-tight: the deep version of the ladder's tight bound.

The critics learn log Q with the target log(r + discount (p/q) exp l(s')), the model maximises log p/q + l(s'), the
policy maximises log Q. At the best model, q ~ p V(s'), all samples have the same target, and the bound is tight. As in
MnM, a real row is a sample of the model q = p, and log p/q is calibrated.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array

from mnm.agents.actor_critic import ActorCritic, next_values, repeat, update_critics, update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics
from mnm.agents.classifier import (
    OFFLINE,
    AdversarialState,
    calibrated,
    delayed,
    experience_ratios,
    init,
    sample_real,
    update_model_and_classifier,
    warm_up,
)
from mnm.agents.mnm import PRESETS, MnMConfig, observe
from mnm.agents.world_model import imagine, sample_experience
from mnm.losses.reward import tight_target
from mnm.replay import Replay, Transitions


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

    # Line 3: the classifier's ratio weighs what follows, inside of the logarithm.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    ratios = experience_ratios(config, state, experience, ratio_key)
    lowest = state.world.statistics.rewards.lowest[0]  # a predicted reward may be lower: no logarithm shall meet it
    rewards = jnp.maximum(experience.rewards, lowest) + config.reward_offset
    noise = jax.random.normal(noise_key, experience.actions.shape)

    # Line 4: update Q on it,
    def critics_step(
        actor_critic: ActorCritic, drawn: tuple[Transitions, Array, Array, Array]
    ) -> tuple[ActorCritic, Metrics]:
        batch, rewards, ratios, noise = drawn
        values = next_values(actor_critic, batch.next_observations, noise)
        targets = tight_target(rewards, ratios, batch.continues, values, config.discount, config.reward_offset)
        return update_critics(config, actor_critic, batch.observations, batch.actions, targets)

    actor_critic, metrics = repeat(critics_step, state.actor_critic, (experience, rewards, ratios, noise))
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
    "mnm_tight",
    "MnM with the tight bound: a critic of log Q",
    PRESETS,
    init,
    observe,
    update,
    warm_up,
    has_model=True,
    has_classifier=True,
    offline=OFFLINE,
    log_returns=True,
)
