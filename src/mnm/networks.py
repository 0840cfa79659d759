"""Networks as Equinox modules that act on whole batches: MLPs and ensembles of them, policy, whitened dynamics.

An ensemble keeps its members apart, and their products are written out one by one: on a CPU that is faster than one
batched product, on one thread by a factor of two, and no member is ever cut out of a common array.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

SMALLEST_STD = 1e-5
LARGEST_LOG_STD = 2.0


class MLP(eqx.Module):
    """Dense layers with ReLU between them."""

    weights: tuple[Array, ...]
    """[in, out] of every layer."""
    biases: tuple[Array, ...]

    def __init__(self, key: PRNGKeyArray, sizes: tuple[int, ...], last_scale: float = 1.0) -> None:
        """Layers of the given sizes, inputs and outputs included; LeCun's uniform start, the last layer scaled."""
        layers = list(pairwise(sizes))
        scales = [1.0] * (len(layers) - 1) + [last_scale]
        self.weights = tuple(
            scale * jax.random.uniform(layer_key, shape, minval=-1.0, maxval=1.0) * (3.0 / shape[0]) ** 0.5
            for layer_key, shape, scale in zip(jax.random.split(key, len(layers)), layers, scales, strict=True)
        )
        self.biases = tuple(jnp.zeros(out) for _, out in layers)

    def __call__(self, inputs: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        """The last layer has no ReLU."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            inputs = jax.nn.relu(inputs @ weight + bias)
        return inputs @ last[0] + last[1]


class Ensemble(eqx.Module):
    """MLPs of the same sizes."""

    members: tuple[MLP, ...]

    def __init__(self, key: PRNGKeyArray, sizes: tuple[int, ...], members: int) -> None:
        self.members = tuple(MLP(member_key, sizes) for member_key in jax.random.split(key, members))

    def __call__(self, inputs: Float[Array, "... batch inputs"]) -> Float[Array, "members batch outputs"]:
        """All members on the same inputs, or each on its own, [members, batch, in]."""
        own = inputs if inputs.ndim == 3 else [inputs] * len(self.members)
        return jnp.stack([member(rows) for member, rows in zip(self.members, own, strict=True)])


class Whitening(eqx.Module):
    """Coordinate-wise mean and standard deviation of what goes into a network, or comes out of it."""

    mean: Float[Array, " dim"]
    std: Float[Array, " dim"]
    """0 where the data never varied."""

    @property
    def unit(self) -> Float[Array, " dim"]:
        """What whitened data are measured in: the std; a coordinate that never varied keeps its units."""
        return jnp.where(self.std > 0, self.std, 1.0)

    @classmethod
    def identity(cls, dim: int) -> Whitening:
        """No change."""
        return cls(jnp.zeros(dim), jnp.ones(dim))

    @classmethod
    def of(cls, data: Float[Array, "rows dim"], used: Float[Array, " rows"] | None = None) -> Whitening:
        """The statistics of the rows (those with `used` = 1)."""
        weights = jnp.ones(len(data)) if used is None else used
        weights = weights[:, None] / jnp.maximum(weights.sum(), 1.0)
        mean = (weights * data).sum(axis=0)
        std = jnp.sqrt((weights * (data - mean) ** 2).sum(axis=0))
        return cls(mean, jnp.where(std > SMALLEST_STD, std, 0.0))

    def whiten(self, data: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """(data - mean) / std."""
        return (data - self.mean) / self.unit

    def restore(self, whitened: Float[Array, "*batch dim"]) -> Float[Array, "*batch dim"]:
        """whitened * std + mean: what never varied is predicted exactly, whatever a network says.

        A goal that stays put would drift otherwise, in a model's units of 1, and carry a rollout away.
        """
        return whitened * self.std + self.mean


class TanhGaussianPolicy(eqx.Module):
    """a = tanh(u), u ~ N(mean(s), std(s)): actions in (-1, 1)."""

    network: MLP

    def __init__(self, key: PRNGKeyArray, observation_dim: int, action_dim: int, hidden: tuple[int, ...]) -> None:
        self.network = MLP(key, (observation_dim, *hidden, 2 * action_dim), last_scale=0.1)

    def _parameters(self, observations: Float[Array, "batch obs"]) -> tuple[Array, Array]:
        means, log_stds = jnp.split(self.network(observations), 2, axis=-1)
        return means, jnp.clip(log_stds, -10.0, LARGEST_LOG_STD)

    def mode(self, observations: Float[Array, "batch obs"]) -> Float[Array, "batch act"]:
        """The deterministic policy: tanh(mean)."""
        return jnp.tanh(self._parameters(observations)[0])

    def sample(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
        """Actions, which the gradient goes through, and their log-probabilities.

        log pi(a|s) = log N(u) - sum log(1 - tanh(u)^2), the last by 2 (log 2 - u - softplus(-2u)), which is exact
        where tanh(u) rounds to 1.
        """
        means, log_stds = self._parameters(observations)
        noise = jax.random.normal(key, means.shape)
        before = means + jnp.exp(log_stds) * noise
        gaussian = -0.5 * noise**2 - log_stds - 0.5 * jnp.log(2.0 * jnp.pi)
        correction = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
        return jnp.tanh(before), (gaussian - correction).sum(axis=-1)


class GaussianDynamics(eqx.Module):
    """An ensemble of Gaussians over the whitened change s' - s, given the whitened (s, a)."""

    network: Ensemble

    def __init__(
        self, key: PRNGKeyArray, observation_dim: int, action_dim: int, hidden: tuple[int, ...], members: int
    ) -> None:
        self.network = Ensemble(key, (observation_dim + action_dim, *hidden, 2 * observation_dim), members)

    @property
    def members(self) -> int:
        """How many networks there are."""
        return len(self.network.members)

    def distribution(
        self, inputs: Float[Array, "... batch inputs"]
    ) -> tuple[Float[Array, "members batch obs"], Float[Array, "members batch obs"]]:
        """Mean and log std of the whitened change, by every member; the std lies between SMALLEST_STD and 1.

        1 is the spread of all changes. The upper bound is soft: a member whose std has run away to a hard one gets no
        gradient any more, and never comes back.
        """
        means, log_stds = jnp.split(self.network(inputs), 2, axis=-1)
        return means, jnp.maximum(-jax.nn.softplus(-log_stds), jnp.log(SMALLEST_STD))

    def sample(
        self, inputs: Float[Array, "batch inputs"], key: PRNGKeyArray, noise_scale: float = 1.0
    ) -> Float[Array, "batch obs"]:
        """Whitened changes, each row through ONE member: row i through member i modulo their number.

        The rows must be in no order that matters. With noise_scale 0, the means.
        """
        rows = len(inputs)
        share = -(-rows // self.members)
        filled = jnp.pad(inputs, ((0, share * self.members - rows), (0, 0)))
        means, log_stds = self.distribution(filled.reshape(share, self.members, -1).swapaxes(0, 1))
        whitened = means + noise_scale * jnp.exp(log_stds) * jax.random.normal(key, means.shape)
        return whitened.swapaxes(0, 1).reshape(share * self.members, -1)[:rows]


def rewhitened_inputs(network: MLP, before: Whitening, after: Whitening) -> MLP:
    """The same function of the data, for inputs that are whitened by other statistics than before."""
    weight, bias = network.weights[0], network.biases[0]
    bias = bias + (after.mean - before.mean) / before.unit @ weight
    weight = weight * (after.unit / before.unit)[:, None]
    return eqx.tree_at(lambda n: (n.weights[0], n.biases[0]), network, (weight, bias))


def rewhitened_outputs(network: MLP, before: Whitening, after: Whitening) -> MLP:
    """The same function of the data, for outputs (then, if there are any, log stds) in other units than before.

    Log stds are meant before they are bounded.
    """
    scale, shift = before.unit / after.unit, (before.mean - after.mean) / after.unit
    weight, bias = network.weights[-1], network.biases[-1]
    dim = len(scale)
    weight = weight.at[:, :dim].multiply(scale)
    bias = bias.at[:dim].set(bias[:dim] * scale + shift).at[dim:].add(jnp.log(scale))
    return eqx.tree_at(lambda n: (n.weights[-1], n.biases[-1]), network, (weight, bias))


Network = TypeVar("Network", bound=eqx.Module)


def slow_copy(target: Network, online: Network, rate: float) -> Network:
    """(1-rate) target + rate online, array by array: an exponential moving average's step."""
    moved: Network = jax.tree.map(lambda old, new: old + rate * (new - old), target, online)
    return moved
