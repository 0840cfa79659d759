"""Networks as Equinox modules that act on whole batches: MLPs and ensembles of them, policy, dynamics.

An ensemble keeps its members apart, and their products are written out one by one: on a CPU that is faster than one
batched product, on one thread by a factor of two, and no member is ever cut out of a common array.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from operator import itemgetter
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

SMALLEST_STD = 1e-5
LARGEST_LOG_STD = 2.0

Activation = Literal["relu", "silu"]
ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


class MLP(eqx.Module):
    """Dense layers with an activation between them; with LayerNorm before it, if wanted."""

    weights: tuple[Array, ...]
    """[in, out] of every layer."""
    biases: tuple[Array, ...]
    scales: tuple[Array, ...]
    """LayerNorm's, of every hidden layer; none without it."""
    shifts: tuple[Array, ...]
    """LayerNorm's too. The biases come before it: without them a first layer would see its inputs' direction alone."""
    activation: Activation = eqx.field(static=True)

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        last_scale: float = 1.0,
        *,
        layer_norm: bool = False,
        activation: Activation = "relu",
    ) -> None:
        """Layers of the given sizes, inputs and outputs included; LeCun's uniform start, the last layer scaled."""
        layers = list(pairwise(sizes))
        scales = [1.0] * (len(layers) - 1) + [last_scale]
        self.weights = tuple(
            scale * jax.random.uniform(layer_key, shape, minval=-1.0, maxval=1.0) * (3.0 / shape[0]) ** 0.5
            for layer_key, shape, scale in zip(jax.random.split(key, len(layers)), layers, scales, strict=True)
        )
        self.biases = tuple(jnp.zeros(out) for _, out in layers)
        normalized = layers[:-1] if layer_norm else []
        self.scales, self.shifts = (tuple(full(out) for _, out in normalized) for full in (jnp.ones, jnp.zeros))
        self.activation = activation

    def __call__(self, inputs: Float[Array, "batch inputs"]) -> Float[Array, "batch outputs"]:
        """The last layer has neither LayerNorm nor activation."""
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for layer, (weight, bias) in enumerate(hidden):
            inputs = inputs @ weight + bias
            if self.scales:
                inputs = standardized(inputs) * self.scales[layer] + self.shifts[layer]
            inputs = ACTIVATIONS[self.activation](inputs)
        return inputs @ last[0] + last[1]


def standardized(rows: Float[Array, "batch units"]) -> Float[Array, "batch units"]:
    """Every row with mean 0 and standard deviation 1: LayerNorm without its scale and shift."""
    centred = rows - rows.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)


class Ensemble(eqx.Module):
    """MLPs of the same sizes."""

    members: tuple[MLP, ...]

    def __init__(
        self,
        key: PRNGKeyArray,
        sizes: tuple[int, ...],
        members: int,
        *,
        layer_norm: bool = False,
        activation: Activation = "relu",
    ) -> None:
        make = partial(MLP, sizes=sizes, layer_norm=layer_norm, activation=activation)
        together = jax.vmap(make)(jax.random.split(key, members))  # a smaller program than one after the other
        self.members = tuple(jax.tree.map(itemgetter(member), together) for member in range(members))

    def __call__(self, inputs: Float[Array, "... batch inputs"]) -> Float[Array, "members batch outputs"]:
        """All members on the same inputs, or each on its own, [members, batch, in]."""
        own = inputs if inputs.ndim == 3 else [inputs] * len(self.members)
        return jnp.stack([member(rows) for member, rows in zip(self.members, own, strict=True)])


class TanhGaussianPolicy(eqx.Module):
    """a = tanh(u), u ~ N(mean(s), std(s)): actions in (-1, 1)."""

    network: MLP

    def __init__(self, key: PRNGKeyArray, observation_dim: int, action_dim: int, hidden: tuple[int, ...]) -> None:
        self.network = MLP(key, (observation_dim, *hidden, 2 * action_dim), last_scale=0.1)

    @property
    def action_dim(self) -> int:
        """How many coordinates an action has."""
        return len(self.network.biases[-1]) // 2

    def _parameters(self, observations: Float[Array, "batch obs"]) -> tuple[Array, Array]:
        means, log_stds = jnp.split(self.network(observations), 2, axis=-1)
        return means, jnp.clip(log_stds, -10.0, LARGEST_LOG_STD)

    def mode(self, observations: Float[Array, "batch obs"]) -> Float[Array, "batch act"]:
        """The deterministic policy: tanh(mean)."""
        return jnp.tanh(self._parameters(observations)[0])

    def sample(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
        """Actions, which the gradient goes through, and their log-probabilities."""
        return self.actions(observations, jax.random.normal(key, (len(observations), self.action_dim)))

    def actions(
        self, observations: Float[Array, "batch obs"], noise: Float[Array, "batch act"]
    ) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
        """The same for standard normal noise that has been drawn.

        log pi(a|s) = log N(u) - sum log(1 - tanh(u)^2), the last by 2 (log 2 - u - softplus(-2u)), which is exact
        where tanh(u) rounds to 1.
        """
        means, log_stds = self._parameters(observations)
        before = means + jnp.exp(log_stds) * noise
        gaussian = -0.5 * noise**2 - log_stds - 0.5 * jnp.log(2.0 * jnp.pi)
        correction = 2.0 * (jnp.log(2.0) - before - jax.nn.softplus(-2.0 * before))
        # The sum over actions as a product: inside of a reduction XLA does not vectorise the logarithms on a CPU.
        return jnp.tanh(before), (gaussian - correction) @ jnp.ones(self.action_dim)


class GaussianDynamics(eqx.Module):
    """An ensemble of Gaussians over the normalized change s' - s, given the normalized s and a."""

    network: Ensemble

    def __init__(
        self,
        key: PRNGKeyArray,
        observation_dim: int,
        action_dim: int,
        hidden: tuple[int, ...],
        members: int,
        activation: Activation = "relu",
    ) -> None:
        sizes = (observation_dim + action_dim, *hidden, 2 * observation_dim)
        self.network = Ensemble(key, sizes, members, activation=activation)

    @property
    def members(self) -> int:
        """How many networks there are."""
        return len(self.network.members)

    def distribution(
        self, inputs: Float[Array, "... batch inputs"]
    ) -> tuple[Float[Array, "members batch obs"], Float[Array, "members batch obs"]]:
        """Mean and log std of the normalized change, by every member; the std lies between SMALLEST_STD and 1.

        1 is the spread of all changes. The upper bound is soft: a member whose std has run away to a hard one gets no
        gradient any more, and never comes back.
        """
        means, log_stds = jnp.split(self.network(inputs), 2, axis=-1)
        return means, jnp.maximum(-jax.nn.softplus(-log_stds), jnp.log(SMALLEST_STD))

    def one_each(
        self, inputs: Float[Array, "batch inputs"]
    ) -> tuple[Float[Array, "batch obs"], Float[Array, "batch obs"]]:
        """Mean and log std of the normalized change, each row by ONE member: row i by member i modulo their number.

        The rows must be in no order that matters.
        """
        rows = len(inputs)
        share = -(-rows // self.members)
        filled = jnp.pad(inputs, ((0, share * self.members - rows), (0, 0)))
        means, log_stds = self.distribution(filled.reshape(share, self.members, -1).swapaxes(0, 1))

        def in_order(by_member: Array) -> Array:
            return by_member.swapaxes(0, 1).reshape(share * self.members, -1)[:rows]

        return in_order(means), in_order(log_stds)

    def sample(
        self, inputs: Float[Array, "batch inputs"], key: PRNGKeyArray, noise_scale: float = 1.0
    ) -> Float[Array, "batch obs"]:
        """Normalized changes, each row by one member; with noise_scale 0, the means."""
        means, log_stds = self.one_each(inputs)
        return means + noise_scale * jnp.exp(log_stds) * jax.random.normal(key, means.shape)


Network = TypeVar("Network", bound=eqx.Module)


def moved_target(target: Network, online: Network, rate: float | Float[Array, ""]) -> Network:
    """(1-rate) target + rate online, array by array: a target network one step behind its online network."""
    moved: Network = jax.tree.map(lambda old, new: old + rate * (new - old), target, online)
    return moved
