"""Running statistics of data, coordinate by coordinate: what goes into a network has mean 0 and standard deviation 1.

They follow every real transition from the first one on, are part of an agent's state, and never jump: after n rows the
next one moves them by 1/n.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_STD = 1e-5
"""A coordinate that varies less is one that never varied."""

JUMP = 4.0
"""What lies further from the mean, in standard deviations, is a jump: an angle that wraps around, say."""
LIMITED_FROM = 100
"""Rows seen before any can be told to be a jump."""
FURTHEST = 10.0
"""Where a jump's logarithm ends: no sample of a model is further away than e^10 units."""


def squash(units: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
    """The same up to a jump, and jumps by their logarithm: u -> sign(u) (JUMP + log(1 + |u| - JUMP))."""
    beyond = jnp.maximum(jnp.abs(units) - JUMP, 0.0)
    return jnp.where(beyond > 0.0, jnp.sign(units) * (JUMP + jnp.log1p(beyond)), units)


def unsquash(squashed: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
    """Its inverse."""
    beyond = jnp.clip(jnp.abs(squashed) - JUMP, 0.0, FURTHEST)
    return jnp.where(beyond > 0.0, jnp.sign(squashed) * (JUMP + jnp.expm1(beyond)), squashed)


class Normalizer(eqx.Module):
    """Mean, variance and range of the rows seen so far; before the first, it changes nothing."""

    count: Float[Array, ""]
    origin: Float[Array, " dim"]
    """The first row: the mean is kept relative to it, or float32 would lose it where the data are far from 0."""
    shift: Float[Array, " dim"]
    """mean - origin."""
    variance: Float[Array, " dim"]
    lowest: Float[Array, " dim"]
    highest: Float[Array, " dim"]

    @classmethod
    def empty(cls, dim: int) -> Normalizer:
        """Nothing seen yet."""
        infinity = jnp.full(dim, jnp.inf, jnp.float32)  # a weak type would compile twice
        return cls(jnp.zeros(()), jnp.zeros(dim), jnp.zeros(dim), jnp.zeros(dim), infinity, -infinity)

    @classmethod
    def of(cls, rows: Float[Array, "rows dim"]) -> Normalizer:
        """The statistics of all these rows."""
        count, apart = jnp.asarray(len(rows), jnp.float32), rows - rows[0]
        return cls(count, rows[0], apart.mean(axis=0), apart.var(axis=0), rows.min(axis=0), rows.max(axis=0))

    def add(self, row: Float[Array, " dim"], most: float | None = None) -> Normalizer:
        """With one row more (Welford's recurrence).

        If `most` is given, mean and variance count it as at most so many standard deviations from the mean: jumps that
        are rarer than one in most^2 rows then cannot drown what varies the rest of the time.
        """
        count = self.count + 1
        origin = jnp.where(self.count > 0, self.origin, row)
        apart = row - origin
        if most is not None:
            limit = jnp.where((self.count >= LIMITED_FROM) & (self.std > 0.0), most * self.std, jnp.inf)
            apart = self.shift + jnp.clip(apart - self.shift, -limit, limit)
        shift = self.shift + (apart - self.shift) / count
        variance = self.variance + ((apart - self.shift) * (apart - shift) - self.variance) / count
        lowest, highest = jnp.minimum(self.lowest, row), jnp.maximum(self.highest, row)
        return Normalizer(count, origin, shift, variance, lowest, highest)

    @property
    def mean(self) -> Float[Array, " dim"]:
        """Of the rows seen."""
        return self.origin + self.shift

    @property
    def std(self) -> Float[Array, " dim"]:
        """The standard deviation; 0 where the data never varied."""
        std = jnp.sqrt(jnp.maximum(self.variance, 0.0))
        return jnp.where(std > SMALLEST_STD, std, 0.0)

    @property
    def unit(self) -> Float[Array, " dim"]:
        """What normalized data are measured in: the std; a coordinate that never varied keeps its units."""
        std = self.std
        return jnp.where(std > 0, std, 1.0)

    @property
    def spread(self) -> Float[Array, " dim"]:
        """What a unit of normalized data is restored to: the std, 0 where the data never varied; 1 before any data."""
        return jnp.where(self.count > 0, self.std, 1.0)

    def normalize(self, data: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """(data - mean) / std."""
        return (data - self.origin - self.shift) / self.unit

    def restore(self, normalized: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """normalized * std + mean: what never varied is predicted exactly, whatever a network says.

        A goal that stays put would drift otherwise, in a model's units of 1, and carry a rollout away.
        """
        return normalized * self.spread + self.shift + self.origin

    def clip(self, data: Float[Array, "*batch dim"], margin: float = 0.0) -> Float[Array, "*batch dim"]:
        """The data within the range seen, widened on both sides by `margin` of its width."""
        slack = margin * (self.highest - self.lowest)
        clipped = jnp.clip(data, self.lowest - slack, self.highest + slack)
        return jnp.where(self.count > 0, clipped, data)
