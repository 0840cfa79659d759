"""MBPO as the paper runs it: a policy trained in a model that is trained for likelihood.

Each update: sample experience from the (slow) model, update Q and policy on it, update the model by maximum likelihood.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.world_model import (
    SETTINGS,
    AgentState,
    ModelConfig,
    World,
    improve_policy,
    init,
    prepare,
    update_dynamics,
    update_outcomes,
)
from mnm.losses.model import likelihood_loss
from mnm.losses.reward import td_target
from mnm.replay import Replay, Transitions

PRESETS = {scale: ModelConfig(**settings) for scale, settings in SETTINGS.items()}

ModelUpdate = Callable[[ModelConfig, AgentState, Transitions, PRNGKeyArray], tuple[World, Metrics]]
"""(config, state, real transitions, key) -> the world after one step of its networks."""


def update(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    return update_with(update_model, config, state, replay)


def update_with(
    update_model: ModelUpdate, config: ModelConfig, state: AgentState, replay: Replay
) -> tuple[AgentState, Metrics]:
    """Q and policy on the model's experience with the plain reward; then the model by the given objective."""
    key, batch_key, policy_key, model_key = jax.random.split(state.key, 4)
    batch = replay.sample(batch_key, config.batch_size)

    def targets(experience: Transitions, values: Float[Array, " batch"]) -> Float[Array, " batch"]:
        return td_target(experience.rewards, experience.continues, values, config.discount)

    actor_critic, imagined, metrics = improve_policy(config, state, batch, policy_key, targets)
    world, model_metrics = update_model(config, state, batch, model_key)
    return AgentState(actor_critic, world, imagined, key), metrics | model_metrics


def warm_up(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of the model alone."""
    key, batch_key, model_key = jax.random.split(state.key, 3)
    world, metrics = update_model(config, state, replay.sample(batch_key, config.batch_size), model_key)
    return AgentState(state.actor_critic, world, state.imagined, key), metrics


def update_model(config: ModelConfig, state: AgentState, batch: Transitions, _: PRNGKeyArray) -> tuple[World, Metrics]:
    """Dynamics by maximum likelihood; rewards and continuation by regression."""
    world, metrics = update_dynamics(config, state.world, batch, lambda nlls, *_: likelihood_loss(nlls))
    world, outcome_metrics = update_outcomes(config, world, batch)
    return world, metrics | outcome_metrics


ALGORITHM = Algorithm("mbpo", "MBPO: a model trained for likelihood", PRESETS, init, update, warm_up, prepare)
