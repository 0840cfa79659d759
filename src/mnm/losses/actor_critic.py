"""The losses of soft actor-critic, which every agent shares."""

from __future__ import annotations

import jax
from jaxtyping import Array, Float


def critic_loss(q_values: Float[Array, "critics batch"], targets: Float[Array, " batch"]) -> Float[Array, ""]:
    """sum over critics of E[ ( Q(s,a) - y )^2 ]  (Eq. q-loss); the targets y are constants."""
    return ((q_values - jax.lax.stop_gradient(targets)) ** 2).mean(axis=-1).sum()


def soft_values(
    target_q_values: Float[Array, "critics batch"], log_probs: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, " batch"]:
    """V(s) = min over critics Q(s,a) - temperature log pi(a|s), at one action a ~ pi."""
    return target_q_values.min(axis=0) - temperature * log_probs


def actor_loss(
    q_values: Float[Array, "critics batch"], log_probs: Float[Array, " batch"], temperature: Float[Array, ""]
) -> Float[Array, ""]:
    """E[ temperature log pi(a|s) - min over critics Q(s,a) ], at a ~ pi  (Eq. pi-loss with the entropy term)."""
    return -soft_values(q_values, log_probs, jax.lax.stop_gradient(temperature)).mean()


def temperature_loss(
    log_temperature: Float[Array, ""], log_probs: Float[Array, " batch"], target_entropy: float
) -> Float[Array, ""]:
    """-log temperature E[ log pi(a|s) + target_entropy ]: raises the temperature while the entropy is below its target.

    The log-probabilities are constants.
    """
    return -log_temperature * jax.lax.stop_gradient(log_probs + target_entropy).mean()
