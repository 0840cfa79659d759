"""MBPO as the paper runs it: a policy trained in a model that is trained for likelihood."""

from __future__ import annotations

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics
from mnm.agents.world_model import (
    SETTINGS,
    AgentState,
    ModelConfig,
    World,
    imagine,
    init,
    observe,
    sample_experience,
    trusted_td_steps,
    update_dynamics,
    update_heads,
)
from mnm.losses.model import likelihood_loss
from mnm.replay import Replay, Transitions

PRESETS = {scale: ModelConfig(**settings) for scale, settings in SETTINGS.items()}


def update(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    key, *keys = jax.random.split(state.key, 7)
    batch_key, imagine_key, critics_key, noise_key, experience_key, policy_key = keys
    batch = replay.sample(batch_key, config.batch_size)
    # Sample experience from the learned model.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    model_buffer = state.model_buffer.add(rows)

    # Update the critics on real transitions and the model's, then the policy.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    actor_critic, metrics = trusted_td_steps(config, state, experience, noise_key)
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Update the model by maximum likelihood.
    world, model_metrics = update_model(config, state.world, batch)
    return AgentState(actor_critic, world, model_buffer, key), metrics | policy_metrics | model_metrics


def warm_up(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of the model alone."""
    key, batch_key = jax.random.split(state.key)
    world, metrics = update_model(config, state.world, replay.sample(batch_key, config.batch_size))
    return AgentState(state.actor_critic, world, state.model_buffer, key), metrics


def update_model(config: ModelConfig, world: World, batch: Transitions) -> tuple[World, Metrics]:
    """Dynamics by maximum likelihood; rewards and termination by regression."""
    world, metrics = update_dynamics(config, world, batch, lambda nlls, *_: likelihood_loss(nlls))
    world, head_metrics = update_heads(config, world, batch)
    return world, metrics | head_metrics


ALGORITHM = Algorithm(
    "mbpo", "MBPO: a model trained for likelihood", PRESETS, init, observe, update, warm_up, has_model=True
)
