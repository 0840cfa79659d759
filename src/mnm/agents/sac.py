"""Soft actor-critic, the paper's baseline without a model: it learns from real transitions alone."""

from __future__ import annotations

import equinox as eqx
import jax
from jaxtyping import Array, PRNGKeyArray

from mnm.agents import actor_critic as parts
from mnm.agents.actor_critic import (
    PAPER,
    ActorCritic,
    ActorCriticConfig,
    init_actor_critic,
    td_steps,
    update_policy,
)
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics
from mnm.replay import Replay, Transitions

PRESETS = {
    "paper": ActorCriticConfig(**PAPER),
    "cpu": ActorCriticConfig(
        hidden=(128, 128), batch_size=128, learning_starts=1_000, updates_per_step=2, critic_updates=5
    ),
    "quick": ActorCriticConfig(hidden=(64, 64), batch_size=128, learning_starts=200, updates_per_step=2),
}


class SACState(eqx.Module):
    """All of the agent."""

    actor_critic: ActorCritic
    key: PRNGKeyArray


def init(config: ActorCriticConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> SACState:
    """A new agent."""
    key, actor_critic_key = jax.random.split(key)
    return SACState(init_actor_critic(config, observation_dim, action_dim, actor_critic_key), key)


def observe(config: ActorCriticConfig, state: SACState, transition: Transitions) -> SACState:
    """The agent with its statistics and its pessimism moved by one real transition."""
    key, noise_key = jax.random.split(state.key)
    return SACState(parts.observe(config, state.actor_critic, transition, noise_key), key)


def update(config: ActorCriticConfig, state: SACState, replay: Replay, _: Array) -> tuple[SACState, Metrics]:
    """One update of everything from real transitions."""
    key, critics_key, noise_key, batch_key, policy_key = jax.random.split(state.key, 5)
    batches = replay.sample_batches(critics_key, config.critic_updates, config.batch_size)
    actor_critic, metrics = td_steps(config, state.actor_critic, batches, noise_key)
    batch = replay.sample(batch_key, config.batch_size)
    actor_critic, policy_metrics = update_policy(config, actor_critic, batch.observations, policy_key)
    return SACState(actor_critic, key), metrics | policy_metrics


ALGORITHM = Algorithm("sac", "soft actor-critic, without a model", PRESETS, init, observe, update)
