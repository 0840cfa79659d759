"""Value-weighted likelihood: MBPO with every transition's likelihood weighed by a softmax of Q over the batch.

During the warm-up Q means nothing yet, and the model is trained for likelihood, as MBPO's.
"""

from __future__ import annotations

from jaxtyping import Array, PRNGKeyArray

from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.mbpo import PRESETS, update_with, warm_up
from mnm.agents.sac import q_values
from mnm.agents.world_model import AgentState, ModelConfig, World, init, prepare, update_dynamics, update_outcomes
from mnm.losses.model import value_weighted_loss
from mnm.replay import Replay, Transitions


def update(config: ModelConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    return update_with(update_model, config, state, replay)


def update_model(config: ModelConfig, state: AgentState, batch: Transitions, _: PRNGKeyArray) -> tuple[World, Metrics]:
    """Dynamics by the likelihood weighed by the lesser slow critic; rewards and continuation by regression."""
    values = q_values(state.actor_critic.target_critics, batch.observations, batch.actions).min(axis=0)
    world, metrics = update_dynamics(config, state.world, batch, lambda nlls, *_: value_weighted_loss(nlls, values))
    world, outcome_metrics = update_outcomes(config, world, batch)
    return world, metrics | outcome_metrics


ALGORITHM = Algorithm(
    "value_weighted", "a model trained for the likelihood weighed by Q", PRESETS, init, update, warm_up, prepare
)
