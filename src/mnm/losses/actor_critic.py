"""The losses of soft actor-critic, which every agent shares."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def critic_loss(
    q_values: Float[Array, "critics batch"],
    targets: Float[Array, " batch"],
    error_limit: float | None = None,
    weights: Float[Array, " batch"] | float = 1.0,
) -> Float[Array, ""]:
    """sum over critics of E[ weight ( Q(s,a) - y )^2 ]  (Eq. q-loss); the targets y and the weights are constants.

    Departs from the paper if a limit is given: an error e beyond it counts as 2 limit e - limit^2 (Huber's loss), so
    that a few targets that are far off do not drown the others. And if weights are given: a row's gradient is then that
    of a target which lies between Q and y, so much of the way as its weight says.
    """
    errors = jnp.abs(q_values - jax.lax.stop_gradient(targets))
    losses = errors**2
    if error_limit is not None:
        losses = jnp.where(errors <= error_limit, losses, 2.0 * error_limit * errors - error_limit**2)
    return (weights * losses).mean(axis=-1).sum()


def shrinkage(agreement: Float[Array, ""], size: Float[Array, ""]) -> Float[Array, ""]:
    """E[ (y - Q)(m - Q) ] / E[ (m - Q)^2 ], between 0 and 1: how much of the errors m - Q is borne out by y - Q.

    The b for which Q + b (m - Q) is nearest to y in the mean square. Here m is the target that the model makes of
    (s, a), and y that of the real transition.
    """
    return jnp.where(size > 0.0, jnp.clip(agreement / jnp.where(size > 0.0, size, 1.0), 0.0, 1.0), 0.0)


def pessimistic_q(
    q_values: Float[Array, "critics=2 batch"], pessimism: float | Float[Array, ""]
) -> Float[Array, " batch"]:
    """The mean of two critics less pessimism times half their distance: with 1 their minimum, as in the paper."""
    first, second = q_values
    return 0.5 * (first + second) - 0.5 * pessimism * jnp.abs(first - second)


def pessimism_step(
    pessimism: Float[Array, ""], surprise: Float[Array, ""], rate: float, least: float | Float[Array, ""], most: float
) -> Float[Array, ""]:
    """The pessimism after one real transition that the critics have not learned from yet, between `least` and `most`.

    Its surprise is r + discount V(s') - Q(s,a), Q and V by the critics' mean. Along a trajectory the surprises,
    discounted, add up to the return less Q at its start: critics that promise too much meet negative ones, and must be
    more pessimistic. Where they are 0 in the mean, Q is right in the mean on the policy's own states.
    """
    return jnp.clip(pessimism - rate * surprise, least, most)


def soft_values(
    q_values: Float[Array, " batch"], log_probs: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, " batch"]:
    """V(s) = Q(s,a) - temperature log pi(a|s), at one action a ~ pi."""
    return q_values - temperature * log_probs


def actor_loss(
    q_values: Float[Array, " batch"], log_probs: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, ""]:
    """E[ temperature log pi(a|s) - Q(s,a) ], at a ~ pi  (Eq. pi-loss with the entropy term)."""
    return -soft_values(q_values, log_probs, jax.lax.stop_gradient(temperature)).mean()


def temperature_loss(
    log_temperature: Float[Array, ""], log_probs: Float[Array, " batch"], target_entropy: float
) -> Float[Array, ""]:
    """-log temperature E[ log pi(a|s) + target_entropy ]: raises the temperature while the entropy is below its target.

    The log-probabilities are constants.
    """
    return -log_temperature * jax.lax.stop_gradient(log_probs + target_entropy).mean()
