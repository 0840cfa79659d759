"""MBPO as the paper runs it: a policy trained in a model that is trained for likelihood."""

from __future__ import annotations

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import next_values, update_actor_critic
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.world_model import (
    SETTINGS,
    AgentState,
    ModelConfig,
    World,
    imagine,
    init,
    prepare,
    update_dynamics,
    update_outcomes,
)
from mnm.losses.model import likelihood_loss
from mnm.losses.reward import td_target
from mnm.replay import Replay, Transitions

PRESETS = {scale: ModelConfig(**settings) for scale, settings in SETTINGS.items()}


def update(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    key, batch_key, policy_key, _model_key = jax.random.split(state.key, 4)
    imagine_key, experience_key, value_key, actor_key = jax.random.split(policy_key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    # Sample experience from the learned model.
    imagined = state.imagined.add(imagine(config, state.world, state.actor_critic.policy, batch, imagine_key))
    experience = imagined.sample(experience_key, config.batch_size)
    # Update Q and policy on it.
    values = next_values(state.actor_critic, experience.next_observations, value_key)
    targets = td_target(experience.rewards, experience.continues, values, config.discount)
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, experience.observations, experience.actions, targets, actor_key
    )
    # Update the model by maximum likelihood.
    world, model_metrics = update_model(config, state.world, batch)
    return AgentState(actor_critic, world, imagined, key), metrics | model_metrics


def warm_up(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of the model alone."""
    key, batch_key, _ = jax.random.split(state.key, 3)
    world, metrics = update_model(config, state.world, replay.sample(batch_key, config.batch_size))
    return AgentState(state.actor_critic, world, state.imagined, key), metrics


def update_model(config: ModelConfig, world: World, batch: Transitions) -> tuple[World, Metrics]:
    """Dynamics by maximum likelihood; rewards and continuation by regression."""
    world, metrics = update_dynamics(config, world, batch, lambda nlls, *_: likelihood_loss(nlls))
    world, outcome_metrics = update_outcomes(config, world, batch)
    return world, metrics | outcome_metrics


ALGORITHM = Algorithm("mbpo", "MBPO: a model trained for likelihood", PRESETS, init, update, warm_up, prepare)
