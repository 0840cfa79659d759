"""What the dynamics model learns from: the adversarial objective of MnM, and the likelihoods of its rivals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def adversarial_loss(
    log_ratios: Float[Array, "*batch"], values: Float[Array, "*batch"], value_weight: float | Float[Array, ""]
) -> Float[Array, ""]:
    """-E_{s' ~ q}[ log p/q + value_weight V(s') ]  (Eq. model-objective), at samples s' that depend on the model.

    value_weight is 0 before the value term enters; then 1 with ratio weight `discount` in the reward, or `discount`
    with ratio weight 1: the consistent pairs.
    """
    return -(log_ratios + value_weight * values).mean()


def value_unit(values: Float[Array, " batch"]) -> Float[Array, ""]:
    """The standard deviation of V over a batch, a constant: what a value term is measured in.

    Where V is in units of reward, V + log p/q would mix units; V / value_unit(V) is free of scale, and of what is added
    to every reward.
    """
    return jnp.maximum(jax.lax.stop_gradient(values).std(), 1e-6)


def gaussian_nll(
    means: Float[Array, "*batch dim"],
    log_stds: Float[Array, "*batch dim"],
    targets: Float[Array, "*#batch dim"],
    beta: float = 0.0,
) -> Float[Array, "*batch"]:
    """-log N(target; mean, std) summed over dimensions, per transition; each dimension weighted by std^(2 beta).

    The weights are constants (beta-NLL, Seitzer et al. 2022) with mean 1, so that what is added to a likelihood keeps
    its weight. At beta 0 the gradient of a mean goes as 1/std^2: a dimension that is predicted to the last digit drowns
    those that are hard. At 1 all means learn as by squared errors.
    """
    whitened = (targets - means) * jnp.exp(-log_stds)
    by_dimension = 0.5 * whitened**2 + log_stds + 0.5 * jnp.log(2.0 * jnp.pi)
    if beta > 0:
        weights = jax.lax.stop_gradient(jnp.exp(2.0 * beta * log_stds))
        by_dimension *= weights / weights.mean()
    return by_dimension.sum(axis=-1)


def likelihood_loss(nlls: Float[Array, "*batch"]) -> Float[Array, ""]:
    """-E_real[ log q(s'|s,a) ]: MBPO's model."""
    return nlls.mean()


def value_weighted_loss(nlls: Float[Array, "*members batch"], weights: Float[Array, " batch"]) -> Float[Array, ""]:
    """-sum_i w_i log q(s'_i|s_i,a_i): the likelihood with weights by a softmax of Q over the batch, see below."""
    return (nlls * weights).sum(axis=-1).mean()


def softmax_weights(q_values: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """softmax(Q): the paper's weights, constants. Where Q spreads over hundreds, one row has all the weight."""
    return jax.lax.stop_gradient(jax.nn.softmax(q_values))


def standardized_weights(q_values: Float[Array, " batch"], smallest_share: float = 0.5) -> Float[Array, " batch"]:
    """softmax(Q / std Q), mixed with uniform weights: the effective sample size is at least a share of the batch.

    The effective sample size 1 / sum w^2 of w = c p + (1-c) / n is n / (1 + c^2 (n sum p^2 - 1)); c is the largest,
    up to 1, for which it is n smallest_share.
    """
    count = len(q_values)
    weights = softmax_weights(q_values / value_unit(q_values))
    excess = count * (weights**2).sum() - 1.0
    kept = jnp.minimum(1.0, jnp.sqrt((1.0 / smallest_share - 1.0) / jnp.maximum(excess, 1e-6)))
    return kept * weights + (1.0 - kept) / count


def vaml_loss(
    nlls: Float[Array, "*members batch"],
    q_values: Float[Array, " batch"],
    rewards: Float[Array, " batch"],
    predicted_values: Float[Array, " batch"],
    discount: float,
    unit: float | Float[Array, ""] = 1.0,
) -> Float[Array, ""]:
    """-E[ log q ] + E[ ( ( r + discount V(s'_model) - Q(s,a) ) / unit )^2 ]: likelihood plus Bellman error.

    Q and the unit are constants; the gradient reaches the model through V at the predicted next states.
    """
    errors = (rewards + discount * predicted_values - jax.lax.stop_gradient(q_values)) / unit
    return nlls.mean() + (errors**2).mean()
