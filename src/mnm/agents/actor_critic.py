"""Policy, two critics with target networks, a learned temperature: what every agent trains, on its own targets.

`next_values` makes the value of what follows; an agent makes the critics' targets of it and of its rewards; then
`update_actor_critic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.algorithm import AgentConfig, Metrics
from mnm.losses.actor_critic import actor_loss, critic_loss, soft_values, temperature_loss
from mnm.networks import Ensemble, TanhGaussianPolicy, slow_copy


@dataclass(frozen=True)
class ActorCriticConfig(AgentConfig):
    """The paper used TF-Agents' defaults, which are these."""

    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the policy and of each critic."""
    learning_rate: float = 3e-4
    target_rate: float = 0.005
    """How fast the slow copies of the critics follow."""
    batch_size: int = 256
    initial_temperature: float = 1.0
    """The entropy's weight at the start; it is learned."""


class ActorCritic(eqx.Module):
    """Policy, critics, temperature, and one optimiser's state for each."""

    policy: TanhGaussianPolicy
    critics: Ensemble
    """Two."""
    target_critics: Ensemble
    log_temperature: Float[Array, ""]
    policy_optimiser: optax.OptState
    critics_optimiser: optax.OptState
    temperature_optimiser: optax.OptState

    @property
    def temperature(self) -> Float[Array, ""]:
        """The weight of the entropy."""
        return jnp.exp(self.log_temperature)


def init_actor_critic(
    config: ActorCriticConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray
) -> ActorCritic:
    """New networks; the slow copies start equal to the critics."""
    policy_key, critics_key = jax.random.split(key)
    policy = TanhGaussianPolicy(policy_key, observation_dim, action_dim, config.hidden)
    critics = Ensemble(critics_key, (observation_dim + action_dim, *config.hidden, 1), members=2)
    log_temperature = jnp.log(jnp.asarray(config.initial_temperature, jnp.float32))  # a weak type would compile twice
    optimiser = optax.adam(config.learning_rate)
    states = (optimiser.init(parameters) for parameters in (policy, critics, log_temperature))
    # A copy of the arrays: buffers that are donated must not be shared.
    return ActorCritic(policy, critics, jax.tree.map(jnp.copy, critics), log_temperature, *states)


def q_values(critics: Ensemble, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]) -> Array:
    """Q(s, a) of every critic, [critics, batch]."""
    return critics(jnp.concatenate([observations, actions], axis=-1))[..., 0]


def next_values(
    actor_critic: ActorCritic, next_observations: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """V(s') by the lesser slow critic at one action of the policy, entropy included."""
    actions, log_probs = actor_critic.policy.sample(next_observations, key)
    targets = q_values(actor_critic.target_critics, next_observations, actions)
    return soft_values(targets, log_probs, actor_critic.temperature)


def plain_values(
    actor_critic: ActorCritic, observations: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """V(s) by the lesser slow critic at one action of the policy, without the entropy: what a model is judged by."""
    actions, _ = actor_critic.policy.sample(observations, key)
    return q_values(actor_critic.target_critics, observations, actions).min(axis=0)


Parameters = TypeVar("Parameters")


def adam_step(
    config: ActorCriticConfig, parameters: Parameters, optimiser: optax.OptState, gradient: Parameters
) -> tuple[Parameters, optax.OptState]:
    """The parameters one step down their gradient, and the optimiser's state after it."""
    updates, optimiser = optax.adam(config.learning_rate).update(gradient, optimiser)
    moved: Parameters = optax.apply_updates(parameters, updates)
    return moved, optimiser


def update_actor_critic(
    config: ActorCriticConfig,
    actor_critic: ActorCritic,
    observations: Float[Array, "batch obs"],
    actions: Float[Array, "batch act"],
    targets: Float[Array, " batch"],
    key: PRNGKeyArray,
) -> tuple[ActorCritic, Metrics]:
    """One step of the critics towards the targets; then, with the new critics, of the policy and the temperature."""

    def critics_objective(critics: Ensemble) -> tuple[Array, Array]:
        predicted = q_values(critics, observations, actions)
        return critic_loss(predicted, targets), predicted.mean()

    (critics_value, mean_q), gradient = jax.value_and_grad(critics_objective, has_aux=True)(actor_critic.critics)
    critics, critics_state = adam_step(config, actor_critic.critics, actor_critic.critics_optimiser, gradient)

    def policy_objective(policy: TanhGaussianPolicy) -> tuple[Array, Array]:
        sampled, log_probs = policy.sample(observations, key)
        return actor_loss(q_values(critics, observations, sampled), log_probs, actor_critic.temperature), log_probs

    (policy_value, log_probs), gradient = jax.value_and_grad(policy_objective, has_aux=True)(actor_critic.policy)
    policy, policy_state = adam_step(config, actor_critic.policy, actor_critic.policy_optimiser, gradient)

    target_entropy = -actions.shape[-1] / 2
    gradient = jax.grad(temperature_loss)(actor_critic.log_temperature, log_probs, target_entropy)
    log_temperature, temperature_state = adam_step(
        config, actor_critic.log_temperature, actor_critic.temperature_optimiser, gradient
    )

    target_critics = slow_copy(actor_critic.target_critics, critics, config.target_rate)
    states = (policy_state, critics_state, temperature_state)
    metrics = {
        "critic_loss": critics_value,
        "actor_loss": policy_value,
        "q_value": mean_q,
        "entropy": -log_probs.mean(),
        "temperature": actor_critic.temperature,
    }
    return ActorCritic(policy, critics, target_critics, log_temperature, *states), metrics
