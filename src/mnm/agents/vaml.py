"""VAML: MBPO whose model is trained for likelihood and for the Bellman error of the next states that it predicts.

During the warm-up Q means nothing yet, and the model is trained for likelihood, as MBPO's.
"""

from __future__ import annotations

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.mbpo import PRESETS, update_with, warm_up
from mnm.agents.sac import plain_values, q_values
from mnm.agents.world_model import AgentState, ModelConfig, World, init, prepare, update_dynamics, update_outcomes
from mnm.losses.model import vaml_loss
from mnm.networks import GaussianDynamics
from mnm.replay import Replay, Transitions


def update(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    return update_with(update_model, config, state, replay)


def update_model(
    config: ModelConfig, state: AgentState, batch: Transitions, key: PRNGKeyArray
) -> tuple[World, Metrics]:
    """Dynamics by likelihood and Bellman error, by the slow critics; rewards and continuation by regression."""
    model_key, policy_key = jax.random.split(key)
    current = q_values(state.actor_critic.target_critics, batch.observations, batch.actions).min(axis=0)

    def loss(nlls: Float[Array, "members batch"], dynamics: GaussianDynamics, inputs: Array) -> Float[Array, ""]:
        predicted = state.world.next_observations(batch.observations, dynamics.sample(inputs, model_key))
        values = batch.continues * plain_values(state.actor_critic, predicted, policy_key)
        return vaml_loss(nlls, current, batch.rewards, values, config.discount)

    world, metrics = update_dynamics(config, state.world, batch, loss)
    world, outcome_metrics = update_outcomes(config, world, batch)
    return world, metrics | outcome_metrics


ALGORITHM = Algorithm(
    "vaml", "a model trained for likelihood and Bellman error", PRESETS, init, update, warm_up, prepare
)
