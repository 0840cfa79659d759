"""Value-weighted likelihood: MBPO with every transition's likelihood weighted by a softmax of Q over the batch.

During the warm-up Q means nothing yet, and the model is trained for likelihood, as MBPO's. Q is standardized before the
softmax, and no few rows have all the weight; the paper's raw softmax is a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import update_policy
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
from mnm.losses.model import softmax_weights, standardized_weights, value_weighted_loss
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class ValueWeightedConfig(ModelConfig):
    """Settings of the value-weighted likelihood."""

    value_term: Literal["relative", "raw"] = "relative"
    """The softmax of standardized Q with a floor on the effective sample size, or of Q, as in the paper."""


PRESETS = {scale: ValueWeightedConfig(**settings) for scale, settings in SETTINGS.items()}
PRESETS["paper"] = ValueWeightedConfig(**SETTINGS["paper"], value_term="raw")


def update(config: ValueWeightedConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
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
    # Update the model by the weighted likelihood; it sees Q as it was.
    world, model_metrics = update_model(config, state, batch)
    return AgentState(actor_critic, world, model_buffer, key), metrics | policy_metrics | model_metrics


def update_model(config: ValueWeightedConfig, state: AgentState, batch: Transitions) -> tuple[World, Metrics]:
    """Dynamics by the likelihood weighted by the target critics' Q; rewards and termination by regression."""
    critics = state.actor_critic.target_critics
    q_values = state.actor_critic.lower_q(critics, batch.observations, batch.actions)
    weights = standardized_weights(q_values) if config.value_term == "relative" else softmax_weights(q_values)
    world, metrics = update_dynamics(config, state.world, batch, lambda nlls, *_: value_weighted_loss(nlls, weights))
    world, head_metrics = update_heads(config, world, batch)
    return world, metrics | head_metrics


ALGORITHM = Algorithm(
    "value_weighted",
    "a model trained for the likelihood weighted by Q",
    PRESETS,
    init,
    observe,
    update,
    warm_up,
    has_model=True,
)
