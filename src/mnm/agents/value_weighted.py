"""Value-weighted likelihood: MBPO with every transition's likelihood weighed by a softmax of Q over the batch.

During the warm-up Q means nothing yet, and the model is trained for likelihood, as MBPO's.
"""

from __future__ import annotations

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import next_values, q_values, update_actor_critic
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.mbpo import PRESETS, warm_up
from mnm.agents.world_model import (
    AgentState,
    ModelConfig,
    World,
    imagine,
    init,
    prepare,
    update_dynamics,
    update_outcomes,
)
from mnm.losses.model import value_weighted_loss
from mnm.losses.reward import td_target
from mnm.replay import Replay, Transitions


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
    # Update the model by value-weighted likelihood.
    world, model_metrics = update_model(config, state, batch)
    return AgentState(actor_critic, world, imagined, key), metrics | model_metrics


def update_model(config: ModelConfig, state: AgentState, batch: Transitions) -> tuple[World, Metrics]:
    """Dynamics by the likelihood weighed by the lesser slow critic; rewards and continuation by regression."""
    values = q_values(state.actor_critic.target_critics, batch.observations, batch.actions).min(axis=0)
    world, metrics = update_dynamics(config, state.world, batch, lambda nlls, *_: value_weighted_loss(nlls, values))
    world, outcome_metrics = update_outcomes(config, world, batch)
    return world, metrics | outcome_metrics


ALGORITHM = Algorithm(
    "value_weighted", "a model trained for the likelihood weighed by Q", PRESETS, init, update, warm_up, prepare
)
