"""A ring buffer of transitions on the device, as a PyTree: filled and sampled inside jit."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

HELD_OUT_EVERY = 10
"""Of so many stored transitions one is held out, for those who ask."""


class Transitions(NamedTuple):
    """A batch of transitions. `continues` is 0 where the episode ended, 1 where it went on or was only cut off."""

    observations: Float[Array, "*batch obs"]
    actions: Float[Array, "*batch act"]
    rewards: Float[Array, "*batch"]
    next_observations: Float[Array, "*batch obs"]
    continues: Float[Array, "*batch"]


class Replay(eqx.Module):
    """The last `capacity` transitions; when it is full, the oldest are overwritten."""

    storage: Transitions
    position: Int[Array, ""]
    """Where the next transition goes."""
    size: Int[Array, ""]
    """How many transitions are stored."""

    @classmethod
    def empty(cls, capacity: int, observation_dim: int, action_dim: int) -> Replay:
        """Room for `capacity` transitions, in float32."""
        storage = Transitions(
            jnp.zeros((capacity, observation_dim)),
            jnp.zeros((capacity, action_dim)),
            jnp.zeros(capacity),
            jnp.zeros((capacity, observation_dim)),
            jnp.zeros(capacity),
        )
        return cls(storage, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """How many transitions fit."""
        return self.storage.rewards.shape[0]

    def add(self, transitions: Transitions) -> Replay:
        """The buffer with a batch of transitions behind the others. A batch must not exceed the capacity."""
        count = transitions.rewards.shape[0]
        if count > self.capacity:
            raise ValueError(f"{count} transitions do not fit into a replay of {self.capacity}")
        places = (self.position + jnp.arange(count)) % self.capacity
        storage = jax.tree.map(lambda stored, new: stored.at[places].set(new), self.storage, transitions)
        position = (self.position + count) % self.capacity
        return Replay(storage, position, jnp.minimum(self.size + count, self.capacity))

    def enlarged(self, capacity: int) -> Replay:
        """The same transitions with room for more; only of a buffer that has overwritten none."""
        storage = jax.tree.map(
            lambda column: jnp.zeros((capacity, *column.shape[1:])).at[: self.capacity].set(column), self.storage
        )
        return Replay(storage, jnp.array(self.size), self.size)

    def sample(self, key: PRNGKeyArray, count: int) -> Transitions:
        """`count` transitions, each drawn uniformly from those stored, with replacement.

        A remainder of 32 random bits: a million transitions differ in probability by 2e-4 of it.
        """
        return self._at(_draw(key, count, self.size))

    def sample_batches(self, key: PRNGKeyArray, batches: int, count: int) -> Transitions:
        """Several such batches, [batches, count]."""
        drawn = self.sample(key, batches * count)
        return jax.tree.map(lambda column: column.reshape(batches, count, *column.shape[1:]), drawn)

    def sample_training(self, key: PRNGKeyArray, count: int) -> Transitions:
        """The same from those that are not held out: nine in ten."""
        drawn = _draw(key, count, self.size - self._held_out)
        places = drawn + drawn // (HELD_OUT_EVERY - 1) + 1
        return self._at(jnp.where(self.size > 1, places, 0))  # a single transition serves for both

    def sample_held_out(self, key: PRNGKeyArray, count: int) -> Transitions:
        """The same from those that are held out: every tenth place of the buffer, the first one included."""
        return self._at(HELD_OUT_EVERY * _draw(key, count, self._held_out))

    @property
    def _held_out(self) -> Int[Array, ""]:
        return (self.size + HELD_OUT_EVERY - 1) // HELD_OUT_EVERY

    def _at(self, places: Array) -> Transitions:
        return jax.tree.map(lambda stored: stored[places], self.storage)


def _draw(key: PRNGKeyArray, count: int, among: Int[Array, ""]) -> Array:
    return jax.random.bits(key, (count,)) % jnp.maximum(among, 1).astype(jnp.uint32)
