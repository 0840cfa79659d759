"""What the dynamics model learns from: the adversarial objective of MnM, and the likelihoods of its rivals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def adversarial_loss(
    log_ratios: Float[Array, "*batch"], values: Float[Array, "*batch"], value_weight: float
) -> Float[Array, ""]:
    """-E_{s' ~ q}[ log p/q + value_weight V(s') ]  (Eq. model-objective), at samples s' that depend on the model.

    value_weight is 0 before the value term enters; then 1 with ratio weight `discount` in the reward, or `discount`
    with ratio weight 1: the consistent pairs.
    """
    return -(log_ratios + value_weight * values).mean()


def relative_values(values: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """V / mean |V|, the mean being a constant: the value term in units of its own size.

    For MnM-approx, whose V is in units of reward, so that V + log p/q would mix units. In the ladder's tight bound the
    term is log V, whose gradient is that of V divided by V; this is the same with one V for the batch.
    """
    size = jax.lax.stop_gradient(jnp.abs(values).mean())
    return values / jnp.maximum(size, 1e-6)


def gaussian_nll(
    means: Float[Array, "*batch dim"], log_stds: Float[Array, "*batch dim"], targets: Float[Array, "*#batch dim"]
) -> Float[Array, "*batch"]:
    """-log N(target; mean, std) summed over dimensions, per transition."""
    whitened = (targets - means) * jnp.exp(-log_stds)
    return (0.5 * whitened**2 + log_stds + 0.5 * jnp.log(2.0 * jnp.pi)).sum(axis=-1)


def likelihood_loss(nlls: Float[Array, "*batch"]) -> Float[Array, ""]:
    """-E_real[ log q(s'|s,a) ]: MBPO's model."""
    return nlls.mean()


def value_weighted_loss(nlls: Float[Array, "*members batch"], q_values: Float[Array, " batch"]) -> Float[Array, ""]:
    """-sum_i softmax(Q)_i log q(s'_i|s_i,a_i): the likelihood with weights by a softmax of Q over the batch.

    The weights are constants.
    """
    weights = jax.lax.stop_gradient(jax.nn.softmax(q_values))
    return (nlls * weights).sum(axis=-1).mean()


def vaml_loss(
    nlls: Float[Array, "*members batch"],
    q_values: Float[Array, " batch"],
    rewards: Float[Array, " batch"],
    predicted_values: Float[Array, " batch"],
    discount: float,
) -> Float[Array, ""]:
    """-E[ log q ] + E[ ( r + discount V(s'_model) - Q(s,a) )^2 ]: the likelihood plus the Bellman error of predictions.

    Q is a constant; the gradient reaches the model through V at the predicted next states.
    """
    errors = rewards + discount * predicted_values - jax.lax.stop_gradient(q_values)
    return nlls.mean() + (errors**2).mean()
