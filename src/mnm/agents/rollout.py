"""What a model imagines from given states with given actions."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float

from mnm.agents.world_model import World


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
