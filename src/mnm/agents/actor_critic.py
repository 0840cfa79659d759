"""Policy, two critics with target networks, a learned temperature: what every agent trains, on its own targets.

An agent makes its rewards, takes a few steps of the critics with `td_steps` (or, with targets of its own, `repeat` and
`update_critics`) and one with `update_policy`. Observations come as the task gives them; policy and critics see them
normalized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mnm.agents.base import AgentConfig, Count, Layers, Metrics, NonNegative, Positive, Rate
from mnm.losses.actor_critic import (
    actor_loss,
    critic_loss,
    pessimism_step,
    pessimistic_q,
    soft_values,
    temperature_loss,
)
from mnm.losses.reward import td_target
from mnm.networks import Ensemble, TanhGaussianPolicy, moved_target
from mnm.normalizer import Normalizer
from mnm.replay import Transitions


@dataclass(frozen=True)
class ActorCriticConfig(AgentConfig):
    """Settings of policy and critics."""

    hidden: Layers = (256, 256)
    """Hidden layers of the policy and of each critic."""
    layer_norm: bool = True
    """LayerNorm before each ReLU of the critics."""
    normalize_observations: bool = True
    """Whether policy and critics see observations with mean 0 and standard deviation 1."""
    learning_rate: Positive = 1e-3
    """Of policy, critics and temperature."""
    target_rate: Rate = 0.02
    """How fast the critics' target networks follow."""
    batch_size: Count = 256
    critic_updates: Count = 1
    """Steps of the critics in an update, each on a batch of its own; the policy and the model take one."""
    error_limit: Positive | None = None
    """Errors of the critics beyond it, in units of the rewards' spread, count linearly; none: all are squared."""
    normalize_rewards: bool = True
    """Whether critics and temperature are in units of the rewards' spread, and Q starts at the mean reward's value."""
    initial_temperature: Positive = 0.1
    """The entropy's weight at the start, in units of the rewards' spread if they are normalized; it is learned."""
    target_entropy: float = -0.5
    """The entropy that the temperature aims at, for each dimension of the action."""
    pessimism: NonNegative = 1.0
    """How far Q lies below the mean of the two critics, in halves of their distance: 1 is their minimum."""
    pessimism_rate: NonNegative = 1e-3
    """How fast the pessimism follows what real transitions show: for each, before it is learned from, it falls by the
    rate times the transition's temporal-difference error in units of the rewards' spread. 0: it stays as it is."""
    least_pessimism: NonNegative = 1.0
    """How far it may fall where episodes end: critics that lag behind a policy which gets better look too low, and are
    not. Where no episode has ended it may fall to 0."""
    policy_average_rate: Rate | None = 0.005
    """How fast the running average of the policy's weights follows, which is evaluated, predicts and is kept; None: the
    latest policy is. Training acts with the latest."""


PAPER: dict[str, Any] = {
    "final_discount": None,
    "random_episode_steps": None,
    "layer_norm": False,
    "normalize_observations": False,
    "normalize_rewards": False,
    "initial_temperature": 1.0,
    "learning_rate": 3e-4,
    "target_rate": 0.005,
    "pessimism_rate": 0.0,
    "policy_average_rate": None,
}
"""What the paper has instead: TF-Agents' defaults."""

MOST_PESSIMISM = 5.0
JUDGED_FROM = 400
"""Updates of the policy before real transitions judge Q: till then it is on its way from where it began."""


class Actor(eqx.Module):
    """The policy, for observations as the task gives them."""

    normalizer: Normalizer
    policy: TanhGaussianPolicy

    def mode(self, observations: Float[Array, "batch obs"]) -> Float[Array, "batch act"]:
        """The deterministic actions."""
        return self.policy.mode(self.normalizer.normalize(observations))

    def sample(
        self, observations: Float[Array, "batch obs"], key: PRNGKeyArray
    ) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
        """Actions and their log-probabilities."""
        return self.policy.sample(self.normalizer.normalize(observations), key)

    def actions(
        self, observations: Float[Array, "batch obs"], noise: Float[Array, "batch act"]
    ) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
        """The same for standard normal noise that has been drawn."""
        return self.policy.actions(self.normalizer.normalize(observations), noise)


class ActorCritic(eqx.Module):
    """Policy, critics, temperature, one optimiser's state for each, and the statistics that normalize."""

    policy: TanhGaussianPolicy
    averaged_policy: TanhGaussianPolicy
    """The running average of its weights."""
    critics: Ensemble
    """Two."""
    target_critics: Ensemble
    log_temperature: Float[Array, ""]
    policy_optimiser: optax.OptState
    critics_optimiser: optax.OptState
    temperature_optimiser: optax.OptState
    observations: Normalizer
    """It stays empty, and changes nothing, if observations shall not be normalized."""
    rewards: Normalizer
    """Of the rewards that the critics learn from; it may stay empty too."""
    continuation: Normalizer
    """Of whether episodes go on."""
    base_value: Float[Array, ""]
    """Q where every step pays the mean reward and goes on as often as the mean step; the critics learn the rest."""
    pessimism: Float[Array, ""]

    @property
    def actor(self) -> Actor:
        """The latest policy with its normalizer: it acts in training, and the critics learn its values."""
        return Actor(self.observations, self.policy)

    @property
    def averaged_actor(self) -> Actor:
        """The averaged policy: the latest one wobbles from update to update, and some of its iterates fall."""
        return Actor(self.observations, self.averaged_policy)

    @property
    def temperature(self) -> Float[Array, ""]:
        """The weight of the entropy, in units of the rewards."""
        return jnp.exp(self.log_temperature) * self.rewards.unit[0]

    def q_values(
        self, critics: Ensemble, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
    ) -> Float[Array, "critics batch"]:
        """Q(s, a) of each of these critics, in units of the rewards."""
        inputs = jnp.concatenate([self.observations.normalize(observations), actions], axis=-1)
        return self.base_value + self.rewards.unit[0] * critics(inputs)[..., 0]

    def lower_q(
        self, critics: Ensemble, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
    ) -> Float[Array, " batch"]:
        """Q(s, a) that targets, policy and model go by: as far below the critics' mean as the pessimism says."""
        return pessimistic_q(self.q_values(critics, observations, actions), self.pessimism)


def init_actor_critic(
    config: ActorCriticConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray
) -> ActorCritic:
    """New networks; the target networks start equal to the critics."""
    policy_key, critics_key = jax.random.split(key)
    policy = TanhGaussianPolicy(policy_key, observation_dim, action_dim, config.hidden)
    sizes = (observation_dim + action_dim, *config.hidden, 1)
    critics = Ensemble(critics_key, sizes, members=2, layer_norm=config.layer_norm)
    log_temperature = jnp.log(jnp.asarray(config.initial_temperature, jnp.float32))  # a weak type would compile twice
    optimiser = optax.adam(config.learning_rate)
    states = (optimiser.init(parameters) for parameters in (policy, critics, log_temperature))
    averaged, targets = jax.tree.map(jnp.copy, (policy, critics))  # buffers that are donated must not be shared
    pessimism = jnp.asarray(config.pessimism, jnp.float32)
    statistics = (Normalizer.empty(observation_dim), Normalizer.empty(1), Normalizer.empty(1), jnp.zeros(()), pessimism)
    return ActorCritic(policy, averaged, critics, targets, log_temperature, *(*states, *statistics))


def observe(
    config: ActorCriticConfig, actor_critic: ActorCritic, transition: Transitions, key: PRNGKeyArray
) -> ActorCritic:
    """Pessimism and statistics moved by one real transition, with the reward that the critics learn from.

    When the statistics move, Q moves with them at once in all states: the target networks' too, so that no error is
    made.
    """
    if config.pessimism_rate > 0:
        actor_critic = _calibrated(config, actor_critic, transition, key)
    if config.normalize_observations:
        observations = actor_critic.observations.add(transition.observations)
        actor_critic = eqx.tree_at(lambda a: a.observations, actor_critic, observations)
    continuation = actor_critic.continuation.add(transition.continues[None])
    actor_critic = eqx.tree_at(lambda a: a.continuation, actor_critic, continuation)
    if config.normalize_rewards:
        rewards = actor_critic.rewards.add(transition.rewards[None])
        base_value = rewards.mean[0] / (1.0 - config.discount * continuation.mean[0])
        actor_critic = eqx.tree_at(lambda a: (a.rewards, a.base_value), actor_critic, (rewards, base_value))
    return actor_critic


def _calibrated(
    config: ActorCriticConfig, actor_critic: ActorCritic, transition: Transitions, key: PRNGKeyArray
) -> ActorCritic:
    """The pessimism moved by what a transition of the present policy, not yet learned from, says of the critics."""
    row = jax.tree.map(lambda value: value[None], transition)
    noise = jax.random.normal(key, row.actions.shape)
    plain = without_pessimism(actor_critic)
    target = td_target(row.rewards, row.continues, next_values(plain, row.next_observations, noise), config.discount)
    surprise = (target - plain.lower_q(plain.target_critics, row.observations, row.actions))[0]
    surprise = jnp.where(has_begun(actor_critic), surprise / actor_critic.rewards.unit[0], 0.0)
    least = jnp.where(actor_critic.continuation.lowest[0] < 1.0, config.least_pessimism, 0.0)
    pessimism = pessimism_step(actor_critic.pessimism, surprise, config.pessimism_rate, least, MOST_PESSIMISM)
    return eqx.tree_at(lambda a: a.pessimism, actor_critic, pessimism)


def without_pessimism(actor_critic: ActorCritic) -> ActorCritic:
    """The same, going by the critics' mean."""
    return eqx.tree_at(lambda a: a.pessimism, actor_critic, jnp.zeros(()))


def has_begun(actor_critic: ActorCritic) -> Bool[Array, ""]:
    """Whether Q has come far enough from where it began for real transitions to judge it."""
    return actor_critic.policy_optimiser[0].count >= JUDGED_FROM


def next_values(
    actor_critic: ActorCritic, next_observations: Float[Array, "batch obs"], noise: Float[Array, "batch act"]
) -> Float[Array, " batch"]:
    """V(s') by the target critics at one action of the policy, made of `noise`, entropy included."""
    actions, log_probs = actor_critic.actor.actions(next_observations, noise)
    q_values = actor_critic.lower_q(actor_critic.target_critics, next_observations, actions)
    return soft_values(q_values, log_probs, actor_critic.temperature)


def plain_values(
    actor_critic: ActorCritic, observations: Float[Array, "batch obs"], key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """V(s) by the target critics at one action of the policy, without the entropy.

    What a model is judged by.
    """
    actions, _ = actor_critic.actor.sample(observations, key)
    return actor_critic.lower_q(actor_critic.target_critics, observations, actions)


Parameters = TypeVar("Parameters")
Drawn = TypeVar("Drawn")
"""A PyTree of arrays whose first axis counts the steps."""


def adam_step(
    learning_rate: float, parameters: Parameters, optimiser: optax.OptState, gradient: Parameters
) -> tuple[Parameters, optax.OptState]:
    """The parameters one step down their gradient, and the optimiser's state after it."""
    updates, optimiser = optax.adam(learning_rate).update(gradient, optimiser)
    moved: Parameters = optax.apply_updates(parameters, updates)
    return moved, optimiser


def repeat(
    step: Callable[[ActorCritic, Drawn], tuple[ActorCritic, Metrics]], actor_critic: ActorCritic, drawn: Drawn
) -> tuple[ActorCritic, Metrics]:
    """One step after the other, each with its own batch and noise of what was drawn for all; metrics are averages.

    Drawn at once before the loop, they cost less than one by one inside of it.
    """
    actor_critic, metrics = jax.lax.scan(step, actor_critic, drawn)
    return actor_critic, jax.tree.map(jnp.mean, metrics)


def update_critics(
    config: ActorCriticConfig,
    actor_critic: ActorCritic,
    observations: Float[Array, "batch obs"],
    actions: Float[Array, "batch act"],
    targets: Float[Array, " batch"],
    weights: Float[Array, " batch"] | float = 1.0,
) -> tuple[ActorCritic, Metrics]:
    """One step of the critics towards the targets, each as far as its weight says; their target networks follow."""
    unit = actor_critic.rewards.unit[0]

    def objective(critics: Ensemble) -> tuple[Array, Array]:
        predicted = actor_critic.q_values(critics, observations, actions)
        return critic_loss(predicted / unit, targets / unit, config.error_limit, weights), predicted.mean()

    (loss, mean_q), gradient = jax.value_and_grad(objective, has_aux=True)(actor_critic.critics)
    critics, optimiser = adam_step(config.learning_rate, actor_critic.critics, actor_critic.critics_optimiser, gradient)
    target_critics = moved_target(actor_critic.target_critics, critics, config.target_rate)
    moved = eqx.tree_at(
        lambda a: (a.critics, a.target_critics, a.critics_optimiser), actor_critic, (critics, target_critics, optimiser)
    )
    return moved, {"critic_loss": loss, "q_value": mean_q, "pessimism": actor_critic.pessimism}


def td_steps(
    config: ActorCriticConfig,
    actor_critic: ActorCritic,
    batches: Transitions,
    key: PRNGKeyArray,
    absorbing_value: float | Float[Array, ""] = 0.0,
    weights: Float[Array, " rows"] | float = 1.0,
) -> tuple[ActorCritic, Metrics]:
    """One step of the critics for each batch, [steps, rows], towards r + discount V(s'), by the policy as it is.

    `absorbing_value` is V after the end of an episode; the rows have the same `weights` in every batch.
    """
    noise = jax.random.normal(key, batches.actions.shape)

    def step(actor_critic: ActorCritic, drawn: tuple[Transitions, Array]) -> tuple[ActorCritic, Metrics]:
        batch, noise = drawn
        values = next_values(actor_critic, batch.next_observations, noise)
        targets = td_target(batch.rewards, batch.continues, values, config.discount, absorbing_value)
        return update_critics(config, actor_critic, batch.observations, batch.actions, targets, weights)

    return repeat(step, actor_critic, (batches, noise))


def moved_average(
    rate: float | None, average: TanhGaussianPolicy, policy: TanhGaussianPolicy, optimiser: optax.OptState
) -> TanhGaussianPolicy:
    """The average of the policy's iterates: of all so far at first, then with weights that fall by `rate` a step."""
    if rate is None:
        return policy
    steps = optax.tree.get(optimiser, "count")
    return moved_target(average, policy, jnp.maximum(rate, 1.0 / steps))


def update_policy(
    config: ActorCriticConfig, actor_critic: ActorCritic, observations: Float[Array, "batch obs"], key: PRNGKeyArray
) -> tuple[ActorCritic, Metrics]:
    """One step of the policy up the critics as they are now, and of the temperature towards the entropy's target."""

    def objective(policy: TanhGaussianPolicy) -> tuple[Array, Array]:
        actions, log_probs = Actor(actor_critic.observations, policy).sample(observations, key)
        q_values = actor_critic.lower_q(actor_critic.critics, observations, actions)
        return actor_loss(q_values, log_probs, actor_critic.temperature), log_probs

    (loss, log_probs), gradient = jax.value_and_grad(objective, has_aux=True)(actor_critic.policy)
    policy, policy_optimiser = adam_step(
        config.learning_rate, actor_critic.policy, actor_critic.policy_optimiser, gradient
    )
    averaged = moved_average(config.policy_average_rate, actor_critic.averaged_policy, policy, policy_optimiser)
    target_entropy = config.target_entropy * actor_critic.policy.action_dim
    gradient = jax.grad(temperature_loss)(actor_critic.log_temperature, log_probs, target_entropy)
    log_temperature, temperature_optimiser = adam_step(
        config.learning_rate, actor_critic.log_temperature, actor_critic.temperature_optimiser, gradient
    )
    moved = eqx.tree_at(
        lambda a: (a.policy, a.averaged_policy, a.log_temperature, a.policy_optimiser, a.temperature_optimiser),
        actor_critic,
        (policy, averaged, log_temperature, policy_optimiser, temperature_optimiser),
    )
    metrics = {"actor_loss": loss, "entropy": -log_probs.mean(), "temperature": actor_critic.temperature}
    return moved, metrics
