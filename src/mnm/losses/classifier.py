"""The classifier of real against model transitions, and what its logit says about log p/q."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SMALLEST_SHARE = 0.1
"""Of a smoothed logit that log p/q still follows: with smoothing 0.1, down to p/q = 1/80."""

FORGIVEN = 0.2
"""Nats by which a classifier may call all of a model's transitions at some (s, a) fake without being believed."""


def classifier_loss(
    real_logits: Float[Array, "*batch"], model_logits: Float[Array, "*fakes"], smoothing: float = 0.0
) -> Float[Array, ""]:
    """-E_real[ log C ] - E_model[ (1-smoothing) log(1-C) + smoothing log C ],  C = sigmoid(logit)  (Eq. classifier).

    The labels of the negatives alone are smoothed (the paper: by 0.1). Written with softplus, so that no logit is too
    large for it.
    """
    real = jax.nn.softplus(-real_logits).mean()
    fake = (1.0 - smoothing) * jax.nn.softplus(model_logits) + smoothing * jax.nn.softplus(-model_logits)
    return real + fake.mean()


def log_ratio(logits: Float[Array, "*batch"], smoothing: float = 0.0) -> Float[Array, "*batch"]:
    """log p/q = log( (1-smoothing) exp(logit) - smoothing ): what the best classifier's logit means.

    Departs from the paper, which takes the logit itself for log p/q. With negatives smoothed by s the best
    classifier is C = (p + s q) / (p + q), so that exp(logit) = (p/q + s) / (1-s): at p = q the logit is
    log((1+s)/(1-s)), not 0. Without smoothing this is the logit. Near the lowest logit that smoothing allows, the
    logarithm's gradient would grow without limit, and a model that starts far from the data would learn nothing from
    it; from SMALLEST_SHARE on, log p/q goes down with the logit itself.
    """
    share = (1.0 - smoothing) - smoothing * jnp.exp(-jnp.maximum(logits, -20.0))
    return logits + jnp.log(jnp.maximum(share, SMALLEST_SHARE))


def bounded_log_ratio(logits: Float[Array, "*batch"], smoothing: float) -> Float[Array, "*batch"]:
    """The same for a reward: no lower than at the lowest logit that smoothed labels ask for, log(s / (1-s)).

    A logit below it was never asked for: it is a guess about transitions unlike any that the classifier has seen. With
    smoothing 0.1 a reward loses at most 4.5 nats.
    """
    floor = jnp.log(smoothing / (1.0 - smoothing)) if smoothing > 0 else -jnp.inf
    return log_ratio(jnp.maximum(logits, floor), smoothing)


def expected_log_ratio(log_ratios: Float[Array, "samples batch"]) -> Float[Array, " batch"]:
    """E_q[ l ] - max( log E_q[ exp l ], -FORGIVEN ) over samples s' ~ q(.|s, a) of l = log p/q.

    Departs from the paper, which takes l at one sample. The mean has the same place in the bound and none of the noise.
    And E_q[ p/q ] is 1 whatever (s, a): what a classifier says of (s, a) alone is an error, and is taken away. What is
    left is minus the divergence of q from p, never above 0. But where the real s' are not among the samples at all,
    E_q[ exp l ] is 0, and rightly so: an error is taken for one only up to FORGIVEN. That is also what it costs: a
    model that misses no more than 1 - exp(-FORGIVEN) of what really happens pays nothing for it.
    """
    log_mean = jax.nn.logsumexp(log_ratios, axis=0) - jnp.log(len(log_ratios))
    return log_ratios.mean(axis=0) - jnp.maximum(log_mean, -FORGIVEN)


def pessimistic_log_ratio(log_ratios: Float[Array, "samples batch"]) -> Float[Array, " batch"]:
    """min( 0, E_q[ l ] ) over samples s' ~ q(.|s, a) of l = log p/q.

    For a classifier that has seen the policy's actions among its negatives: l then has a part of (s, a) alone, low
    where no data lie. `expected_log_ratio` takes such a part for an error; here it is what is asked for. Above 0 it
    says only that the policy avoids what the data have: nothing is paid for that.
    """
    return jnp.minimum(log_ratios.mean(axis=0), 0.0)


def calibration_step(
    trust: Float[Array, ""], real: Float[Array, " real"], fake: Float[Array, " fake"], rate: float
) -> Float[Array, ""]:
    """A Newton step of t, at most `rate`, in E_real[ -log sigmoid(t l) ] + E_model[ -log sigmoid(-t l) ], l = log p/q.

    The best t multiplies the log ratios of held-out transitions so that sigmoid(t l) is a calibrated probability of
    being real: 1 if l is right, 0 if it says nothing about them. t stays between 0 and 1: an estimate is never
    believed more than it claims.
    """
    slope = (fake * jax.nn.sigmoid(trust * fake)).mean() - (real * jax.nn.sigmoid(-trust * real)).mean()
    spread = [ratios**2 * jax.nn.sigmoid(trust * ratios) * jax.nn.sigmoid(-trust * ratios) for ratios in (real, fake)]
    curvature = spread[0].mean() + spread[1].mean()
    return jnp.clip(trust - rate * jnp.clip(slope / jnp.maximum(curvature, 1e-8), -1.0, 1.0), 0.0, 1.0)


def classifier_accuracy(real_logits: Float[Array, "*batch"], model_logits: Float[Array, "*fakes"]) -> Float[Array, ""]:
    """The share of transitions that the classifier gets right, real and model ones weighing the same."""
    return 0.5 * ((real_logits > 0).mean() + (model_logits < 0).mean())
