"""VAML: MBPO whose model is trained for likelihood and for the Bellman error of the next states that it predicts.

During the warm-up Q means nothing yet, and the model is trained for likelihood, as MBPO's. The error is measured in
units of Q's spread: in those of reward it outweighs the likelihood where returns are large, and costs the model its
accuracy. The paper's form is a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.actor_critic import (
    plain_values,
    update_policy,
)
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics
from mnm.agents.mbpo import warm_up
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
from mnm.losses.model import value_unit, vaml_loss
from mnm.networks import GaussianDynamics
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class VAMLConfig(ModelConfig):
    """Settings of VAML."""

    value_term: Literal["relative", "raw"] = "relative"
    """The Bellman error in units of Q's standard deviation, or in those of reward, as in the paper."""


PRESETS = {scale: VAMLConfig(**settings) for scale, settings in SETTINGS.items()}
PRESETS["paper"] = VAMLConfig(**SETTINGS["paper"], value_term="raw")


def update(config: VAMLConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    key, *keys = jax.random.split(state.key, 8)
    batch_key, imagine_key, critics_key, noise_key, experience_key, policy_key, model_key = keys
    batch = replay.sample(batch_key, config.batch_size)
    # Sample experience from the learned model.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    model_buffer = state.model_buffer.add(rows)

    # Update the critics on real transitions and the model's, then the policy.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    actor_critic, metrics = trusted_td_steps(config, state, experience, noise_key)
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Update the model by likelihood and Bellman error; it sees Q and policy as they were.
    world, model_metrics = update_model(config, state, batch, model_key)
    return AgentState(actor_critic, world, model_buffer, key), metrics | policy_metrics | model_metrics


def update_model(config: VAMLConfig, state: AgentState, batch: Transitions, key: PRNGKeyArray) -> tuple[World, Metrics]:
    """Dynamics by likelihood and Bellman error, by the target critics; rewards and termination by regression."""
    model_key, policy_key = jax.random.split(key)
    critics = state.actor_critic.target_critics
    current = state.actor_critic.lower_q(critics, batch.observations, batch.actions)
    unit = value_unit(current) if config.value_term == "relative" else 1.0

    def loss(nlls: Float[Array, "members batch"], dynamics: GaussianDynamics, inputs: Array) -> Float[Array, ""]:
        predicted = state.world.next_observations(batch.observations, dynamics.sample(inputs, model_key))
        values = batch.continues * plain_values(state.actor_critic, predicted, policy_key)
        return vaml_loss(nlls, current, batch.rewards, values, config.discount, unit)

    world, metrics = update_dynamics(config, state.world, batch, loss)
    world, head_metrics = update_heads(config, world, batch)
    return world, metrics | head_metrics


ALGORITHM = Algorithm(
    "vaml", "a model trained for likelihood and Bellman error", PRESETS, init, observe, update, warm_up, has_model=True
)
