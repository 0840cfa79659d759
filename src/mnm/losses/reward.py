"""What the critic learns from: the augmented reward of each method, and the tight bound's target.

An episode that ends leads to an absorbing state that pays `absorbing_reward` for ever, the explicit offset that makes
the rewards positive; in logarithms its value is log( absorbing_reward / (1-discount) ), see `absorbing_log_value`.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def mnm_reward(
    rewards: Float[Array, "*batch"], log_ratios: Float[Array, "*batch"], discount: float, ratio_weight: float
) -> Float[Array, "*batch"]:
    """(1-discount) log r + ratio_weight log p/q - (1-discount) log(1-discount)  (Eq. aug-reward).

    ratio_weight 1 belongs to a model that maximises discount V + log p/q (the paper's bound), ratio_weight `discount`
    to one that maximises V + log p/q (the sharper bound, and the paper's printed model objective).
    """
    rest = 1.0 - discount
    return rest * (jnp.log(rewards) - jnp.log(rest)) + ratio_weight * log_ratios


def vmbpo_reward(
    rewards: Float[Array, "*batch"], log_ratios: Float[Array, "*batch"], temperature: float = 1.0
) -> Float[Array, "*batch"]:
    """r + (1/temperature) log p/q: no logarithm of the reward."""
    return rewards + log_ratios / temperature


def td_target(
    rewards: Float[Array, "*batch"],
    continues: Float[Array, "*batch"],
    next_values: Float[Array, "*batch"],
    discount: float,
    absorbing_value: float | Float[Array, ""] = 0.0,
) -> Float[Array, "*batch"]:
    """r + discount V(s'), where V is `absorbing_value` if the episode has ended (continues = 0)  (Eq. q-loss).

    An episode that was only cut off (truncated) continues. In between, `continues` is the probability to go on.
    """
    return rewards + discount * (continues * next_values + (1.0 - continues) * absorbing_value)


def tight_target(
    rewards: Float[Array, "*batch"],
    log_ratios: Float[Array, "*batch"],
    continues: Float[Array, "*batch"],
    next_log_values: Float[Array, "*batch"],
    discount: float,
    absorbing_reward: float = 0.0,
) -> Float[Array, "*batch"]:
    """log( r + discount (p/q) exp l(s') ): the critic's target for log Q in the tight bound.

    Where the episode has ended, (p/q) exp l(s') is absorbing_reward / (1-discount). Computed by logaddexp, so that
    neither exp l nor the ratio overflows.
    """
    log_go_on = jnp.log(continues) + log_ratios + next_log_values
    log_ended = jnp.log1p(-continues) + jnp.log(absorbing_reward / (1.0 - discount))
    return jnp.logaddexp(jnp.log(rewards), jnp.log(discount) + jnp.logaddexp(log_go_on, log_ended))


def absorbing_log_value(absorbing_reward: float, discount: float) -> Float[Array, ""]:
    """log( absorbing_reward / (1-discount) ): the value, in logarithms, of the state after the end."""
    return jnp.log(absorbing_reward / (1.0 - discount))
