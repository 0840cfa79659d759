"""What a model imagines from given states with given actions."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.world_model import World
from mnm.envs.terminations import Termination
from mnm.replay import Transitions


@jax.jit
def mean_rollout(
    world: World, starts: Float[Array, "rows obs"], actions: Float[Array, "steps rows act"]
) -> Float[Array, "steps rows obs"]:
    """The target network's next observations, step after step on its own: the mean over its members' means."""

    def step(observations: Array, actions: Array) -> tuple[Array, Array]:
        means, _ = world.target_dynamics.distribution(world.inputs(observations, actions))
        after = world.next_observations(observations, means.mean(axis=0))
        return after, after

    return jax.lax.scan(step, starts, actions)[1]


@partial(jax.jit, static_argnums=0)
def prediction(
    termination: Termination | None,
    world: World,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
) -> tuple[Float[Array, "members rows obs"], Float[Array, "members rows obs"], Transitions]:
    """Mean and std of the next observation by every member of the target network; and what follows its mean change."""
    means, log_stds = world.target_dynamics.distribution(world.inputs(observations, actions))
    outcome = world.outcome(termination, observations, actions, means.mean(axis=0))
    after = partial(world.next_observations, observations)
    next_observations, stds = jax.jvp(after, (means,), (jnp.exp(log_stds),))
    return next_observations, stds, outcome


@partial(jax.jit, static_argnums=0)
def sampled_step(
    termination: Termination | None,
    world: World,
    observations: Float[Array, "rows obs"],
    actions: Float[Array, "rows act"],
    key: PRNGKeyArray,
) -> Transitions:
    """One step in the target network, each row by a member drawn for it.

    Where `World.step` gives the members' rows out in turn, one row alone would always be the first member's.
    """
    member_key, noise_key = jax.random.split(key)
    means, log_stds = world.target_dynamics.distribution(world.inputs(observations, actions))
    members = jax.random.randint(member_key, (len(observations),), 0, len(means))
    rows = jnp.arange(len(observations))
    noise = jax.random.normal(noise_key, observations.shape)
    changes = means[members, rows] + jnp.exp(log_stds[members, rows]) * noise
    return world.outcome(termination, observations, actions, changes)
