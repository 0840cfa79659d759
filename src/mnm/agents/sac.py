"""Soft actor-critic, the paper's baseline without a model: it learns from real transitions alone."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from mnm.agents.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    init_actor_critic,
    next_values,
    update_actor_critic,
)
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.losses.reward import td_target
from mnm.replay import Replay

PRESETS = {
    "paper": ActorCriticConfig(),
    "cpu": ActorCriticConfig(hidden=(128, 128), random_steps=1_000, updates_per_step=10),
    "quick": ActorCriticConfig(hidden=(64, 64), batch_size=128, random_steps=200, updates_per_step=2),
}


class SACState(eqx.Module):
    """All of the agent."""

    actor_critic: ActorCritic
    key: PRNGKeyArray


def init(config: ActorCriticConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> SACState:
    """A new agent."""
    key, actor_critic_key = jax.random.split(key)
    return SACState(init_actor_critic(config, observation_dim, action_dim, actor_critic_key), key)


def update(config: ActorCriticConfig, state: SACState, replay: Replay, _: Array) -> tuple[SACState, Metrics]:
    """One update from a batch of real transitions."""
    key, batch_key, value_key, policy_key = jax.random.split(state.key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    values = next_values(state.actor_critic, batch.next_observations, value_key)
    targets = td_target(batch.rewards, batch.continues, values, config.discount)
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, batch.observations, batch.actions, targets, policy_key
    )
    return SACState(actor_critic, key), metrics


ALGORITHM = Algorithm("sac", "soft actor-critic, without a model", PRESETS, init, update)
