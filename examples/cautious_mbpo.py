"""An agent of your own: MBPO that distrusts its model where the ensemble disagrees (MOPO's penalty).

All that differs from `mnm/agents/mbpo.py` is here: one setting, and what the critics learn from. Try it in this folder:

    mnm train cautious_mbpo:cautious --env Pendulum-v1 --steps 1500
    mnm sweep --agents cautious_mbpo:cautious mbpo --envs Pendulum-v1 --seeds 0 1 2 --steps 1500
    mnm compare runs --baseline mbpo --picture curves.svg
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnm.agents.actor_critic import update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics, NonNegative
from mnm.agents.mbpo import update_model, warm_up
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
)
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class CautiousConfig(ModelConfig):
    """MBPO's settings and one more; its type says that it must not be negative, its text is the flag's help."""

    penalty: NonNegative = 0.5
    """What a model step loses for each unit of disagreement; both in units of their spread in real transitions."""


def disagreement(world: World, rows: Transitions) -> Float[Array, " batch"]:
    """How far the ensemble's means of the normalized change lie apart, in the worst dimension."""
    means, _ = world.target_dynamics.distribution(world.inputs(rows.observations, rows.actions))
    return means.std(axis=0).max(axis=-1)


def update(config: CautiousConfig, state: AgentState, replay: Replay, _: Array) -> tuple[AgentState, Metrics]:
    """One update of everything."""
    key, *keys = jax.random.split(state.key, 7)
    batch_key, imagine_key, critics_key, noise_key, experience_key, policy_key = keys
    batch = replay.sample(batch_key, config.batch_size)
    # Sample experience from the model; take off from its rewards what it does not know.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    doubt = disagreement(state.world, rows)
    unit = state.world.statistics.rewards.unit[0]
    model_buffer = state.model_buffer.add(rows._replace(rewards=rows.rewards - config.penalty * unit * doubt))

    # Update the critics on real transitions and the model's, then the policy.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    actor_critic, metrics = trusted_td_steps(config, state, experience, noise_key)
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Update the model by maximum likelihood.
    world, model_metrics = update_model(config, state.world, batch)
    metrics |= policy_metrics | model_metrics | {"disagreement": jnp.mean(doubt)}
    return AgentState(actor_critic, world, model_buffer, key), metrics


cautious = Algorithm(
    name="cautious",
    title="MBPO that distrusts its model where the ensemble disagrees",
    presets={scale: CautiousConfig(**settings) for scale, settings in SETTINGS.items()},
    init=init,
    observe=observe,
    update=update,
    warm_up=warm_up,
    has_model=True,
)
