"""What the model-based agents share: dynamics with a target network, reward and termination heads, model experience.

Every network sees normalized inputs, by statistics that follow every real transition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import tyro
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents import actor_critic as parts
from mnm.agents.actor_critic import (
    Actor,
    ActorCritic,
    ActorCriticConfig,
    adam_step,
    has_begun,
    init_actor_critic,
    next_values,
    td_steps,
    without_pessimism,
)
from mnm.agents.base import Count, CountOrZero, Layers, Metrics, NonNegative, Positive, Rate, Share
from mnm.envs.terminations import Termination
from mnm.losses.actor_critic import shrinkage
from mnm.losses.model import gaussian_nll
from mnm.losses.reward import td_target
from mnm.networks import MLP, Activation, GaussianDynamics, Network, moved_target
from mnm.normalizer import JUMP, Normalizer, squash, unsquash
from mnm.replay import Replay, Transitions

PRIOR_ROWS = 3_000
"""Up to so many real transitions the weight decay is whole; then it falls as 1/n, as a prior's weight beside data."""

TRUST_START = 50
"""Transitions seen before the model's rows weigh less than real ones."""

RANGE_MARGIN = 0.1
"""How far outside of the range seen a predicted observation may lie, in widths of that range."""


@dataclass(frozen=True)
class ModelConfig(ActorCriticConfig):
    """Settings of every model-based agent."""

    model_hidden: Layers = (256, 256, 256, 256)
    """Hidden layers of each dynamics model."""
    ensemble_size: Count = 5
    """How many dynamics models."""
    head_hidden: Layers = (256, 256)
    """Hidden layers of the reward network and of the network for the probability that the episode goes on."""
    model_activation: Activation = "silu"
    """Of the dynamics, reward and termination networks."""
    model_learning_rate: Positive = 1e-3
    """Of the dynamics, reward and termination networks."""
    model_weight_decay: NonNegative = 0.3
    """Of the dynamics, reward and termination networks, as AdamW's: a step takes learning rate x decay of each weight.
    It falls as 1/n once there are more than 3,000 real transitions."""
    nll_beta: NonNegative = 0.5
    """The likelihood of each coordinate is weighted by its predicted std to the power of twice this: 0 is the plain
    likelihood, in which what is easy to predict drowns the rest; at 1 the means learn as by squared errors."""
    model_target_rate: Rate = 0.001
    """How fast the dynamics' target network, which makes the experience, follows."""
    model_buffer_capacity: Count = 256_000
    """How many transitions of the model are kept."""
    rollout_length: Count = 1
    """Steps in the model from each real state."""
    real_ratio: Share = 0.75
    """The share of real transitions in every batch of the critics and the policy; the rest is the model's."""
    real_action_ratio: NonNegative = 0.0
    """The share of the model's steps from real states that take the real action; the rest takes the policy's."""
    trust_rate: Rate | None = 0.002
    """How fast the weight of the model's rows in the critics' loss follows what real transitions bear out of the errors
    that the model finds in Q; None: they weigh as much as real rows."""
    warmup_updates: CountOrZero = 100_000
    """Updates of the model alone, when the random steps are over and before the policy starts to learn."""
    termination: Annotated[Termination | None, tyro.conf.Suppress] = None
    """The task's own termination function, instead of a learned one."""


SETTINGS: dict[str, dict[str, Any]] = {
    "paper": parts.PAPER
    | {
        "real_ratio": 0.0,
        "real_action_ratio": 0.5,
        "model_activation": "relu",
        "model_learning_rate": 3e-4,
        "model_weight_decay": 0.0,
        "nll_beta": 0.0,
        "trust_rate": None,
    },
    "cpu": {
        "hidden": (128, 128),
        "model_hidden": (128, 128, 128),
        "head_hidden": (128, 128),
        "batch_size": 128,
        "model_target_rate": 0.005,
        "learning_starts": 1_000,
        "warmup_updates": 3_000,
        "updates_per_step": 2,
        "critic_updates": 5,
    },
    "quick": {
        "hidden": (64, 64),
        "model_hidden": (32, 32),
        "head_hidden": (32, 32),
        "batch_size": 128,
        "learning_starts": 200,
        "warmup_updates": 250,
        "updates_per_step": 2,
        "model_buffer_capacity": 20_000,
    },
}
"""What each scale changes."""


class Statistics(eqx.Module):
    """Of the real transitions."""

    observations: Normalizer
    changes: Normalizer
    """Of s' - s."""
    rewards: Normalizer
    ends: Float[Array, ""]
    """How many transitions ended their episode."""

    def add(self, transition: Transitions) -> Statistics:
        """With one transition more."""
        return Statistics(
            self.observations.add(transition.observations),
            self.changes.add(transition.next_observations - transition.observations, most=JUMP),
            self.rewards.add(transition.rewards[None]),
            self.ends + (1.0 - transition.continues),
        )


class Trust(eqx.Module):
    """How far the errors that the model finds in Q are borne out by real transitions: two running averages."""

    agreement: Float[Array, ""]
    """Of (y - Q)(m - Q): y the target of a real transition, m the one that the model makes of the same (s, a)."""
    size: Float[Array, ""]
    """Of (m - Q)^2."""
    count: Float[Array, ""]
    """Transitions seen."""

    @classmethod
    def whole(cls) -> Trust:
        """Of a model of which nothing is known yet."""
        return cls(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))

    @property
    def value(self) -> Float[Array, ""]:
        """Between 0 and 1: the share of the model's errors that is believed."""
        return jnp.where(self.count < TRUST_START, 1.0, shrinkage(self.agreement, self.size))

    def add(self, real: Float[Array, ""], models: Float[Array, " members"], rate: float) -> Trust:
        """With one transition more: its error y - Q, and the errors m - Q by samples of the model, one a member.

        The members' noise averages out over the rows of the critics, and so must it in the square of their mean.
        """
        count, members = self.count + 1.0, len(models)
        square = models.mean() ** 2
        if members > 1:
            square -= models.var() / (members - 1)
        rate_now = jnp.maximum(rate, 1.0 / count)
        agreement = self.agreement + rate_now * (real * models.mean() - self.agreement)
        return Trust(agreement, self.size + rate_now * (square - self.size), count)


class World(eqx.Module):
    """The learned model of the task, and one optimiser's state for each network."""

    statistics: Statistics
    dynamics: GaussianDynamics
    target_dynamics: GaussianDynamics
    reward_head: MLP
    """Normalized s, a -> normalized r."""
    termination_head: MLP
    """Normalized s, a, s' -> logit of the probability that the episode goes on."""
    trust: Trust
    dynamics_optimiser: optax.OptState
    reward_optimiser: optax.OptState
    termination_optimiser: optax.OptState

    def inputs(self, observations: Array, actions: Array) -> Array:
        """Normalized s, and a, which lies in [-1, 1]."""
        return jnp.concatenate([self.statistics.observations.normalize(observations), actions], axis=-1)

    def changes(self, observations: Array, next_observations: Array) -> Array:
        """Normalized s' - s, jumps by their logarithm: few of them would be most of every loss."""
        return squash(self.statistics.changes.normalize(next_observations - observations))

    def next_observations(self, observations: Array, changes: Array) -> Array:
        """s' from s and the normalized change."""
        return observations + self.statistics.changes.restore(unsquash(changes))

    def continue_logits(
        self, termination_head: MLP, observations: Array, actions: Array, next_observations: Array
    ) -> Float[Array, " batch"]:
        """Of the probability that the episode goes on.

        The head sees s', not s' - s as the others: most often an episode ends where a coordinate of s' crosses a
        bound, and few ends must do to learn it.
        """
        after = self.statistics.observations.normalize(next_observations)
        return termination_head(jnp.concatenate([self.inputs(observations, actions), after], axis=-1))[..., 0]

    def step(
        self,
        dynamics: GaussianDynamics,
        termination: Termination | None,
        observations: Float[Array, "batch obs"],
        actions: Float[Array, "batch act"],
        key: PRNGKeyArray,
    ) -> Transitions:
        """One step in the model; `continues` is the probability to go on."""
        changes = dynamics.sample(self.inputs(observations, actions), key)
        return self.outcome(termination, observations, actions, changes)

    def outcome(
        self,
        termination: Termination | None,
        observations: Float[Array, "batch obs"],
        actions: Float[Array, "batch act"],
        changes: Float[Array, "batch obs"],
    ) -> Transitions:
        """What follows from normalized changes: the next observations, near the states seen; rewards, continuation.

        As long as no episode has ever ended, none ends in the model.
        """
        inputs = self.inputs(observations, actions)
        next_observations = self.statistics.observations.clip(
            self.next_observations(observations, changes), RANGE_MARGIN
        )
        if termination is None:
            logits = self.continue_logits(self.termination_head, observations, actions, next_observations)
            continues = jnp.where(self.statistics.ends > 0, jax.nn.sigmoid(logits), 1.0)
        else:
            continues = 1.0 - termination(observations, actions, next_observations).astype(jnp.float32)
        rewards = self.statistics.rewards.restore(self.reward_head(inputs))[..., 0]
        return Transitions(observations, actions, rewards, next_observations, continues)


class AgentState(eqx.Module):
    """All of an agent that learns a model; those with a classifier have it beside this."""

    actor_critic: ActorCritic
    world: World
    model_buffer: Replay
    key: PRNGKeyArray


AnyState = TypeVar("AnyState", bound=AgentState)


def init(config: ModelConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> AgentState:
    """A new agent without a classifier."""
    key, actor_critic_key, world_key = jax.random.split(key, 3)
    return AgentState(
        init_actor_critic(config, observation_dim, action_dim, actor_critic_key),
        init_world(config, observation_dim, action_dim, world_key),
        Replay.empty(config.model_buffer_capacity, observation_dim, action_dim),
        key,
    )


def init_world(config: ModelConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> World:
    """New networks; the target network starts equal to the dynamics."""
    dynamics_key, rewards_key, continues_key = jax.random.split(key, 3)
    inputs = observation_dim + action_dim
    statistics = Statistics(
        Normalizer.empty(observation_dim), Normalizer.empty(observation_dim), Normalizer.empty(1), jnp.zeros(())
    )
    activation = config.model_activation
    dynamics = GaussianDynamics(
        dynamics_key, observation_dim, action_dim, config.model_hidden, config.ensemble_size, activation
    )
    rewards = MLP(rewards_key, (inputs, *config.head_hidden, 1), activation=activation)
    continues = MLP(continues_key, (inputs + observation_dim, *config.head_hidden, 1), activation=activation)
    optimiser = optax.adam(config.model_learning_rate)
    states = (optimiser.init(network) for network in (dynamics, rewards, continues))
    target = jax.tree.map(jnp.copy, dynamics)
    return World(statistics, dynamics, target, rewards, continues, Trust.whole(), *states)


def observe(config: ModelConfig, state: AnyState, transition: Transitions) -> AnyState:
    """The agent with its statistics, its pessimism and its trust in the model moved by one real transition."""
    if config.trust_rate is not None:
        key, trust_key = jax.random.split(state.key)
        trust = moved_trust(config, config.trust_rate, state, transition, trust_key)
        state = eqx.tree_at(lambda s: (s.world.trust, s.key), state, (trust, key))
    return observe_with_reward(config, state, transition, transition.rewards, transition.continues)


def moved_trust(config: ModelConfig, rate: float, state: AnyState, transition: Transitions, key: PRNGKeyArray) -> Trust:
    """The trust moved by what a transition of the present policy, not yet learned from, says of the model.

    All errors are of the critics' mean, by the same draw of the policy's noise.
    """
    world, actor_critic = state.world, without_pessimism(state.actor_critic)
    model_key, policy_key = jax.random.split(key)
    real = jax.tree.map(lambda value: value[None], transition)
    means, log_stds = world.target_dynamics.distribution(world.inputs(real.observations, real.actions))
    changes = (means + jnp.exp(log_stds) * jax.random.normal(model_key, means.shape))[:, 0]
    observations, actions = (jnp.repeat(rows, len(changes), axis=0) for rows in (real.observations, real.actions))
    noise = jax.random.normal(policy_key, real.actions.shape)
    unit = actor_critic.rewards.unit[0]
    q_value = actor_critic.lower_q(actor_critic.critics, real.observations, real.actions)

    def errors(rows: Transitions) -> Float[Array, " rows"]:
        values = next_values(actor_critic, rows.next_observations, jnp.broadcast_to(noise, rows.actions.shape))
        return (td_target(rows.rewards, rows.continues, values, config.discount) - q_value) / unit

    moved = world.trust.add(
        errors(real)[0], errors(world.outcome(config.termination, observations, actions, changes)), rate
    )
    return jax.tree.map(lambda new, old: jnp.where(has_begun(actor_critic), new, old), moved, world.trust)


def target_errors(
    config: ModelConfig, world: World, actor_critic: ActorCritic, rows: Transitions, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """abs( y - m ) in units of the rewards' spread: y the targets of real transitions, m those that the model makes of
    the same (s, a), the mean over its members' means; both by the same draw of the policy's noise."""
    noise = jax.random.normal(key, rows.actions.shape)

    def targets(rows: Transitions) -> Float[Array, " batch"]:
        values = next_values(actor_critic, rows.next_observations, noise)
        return td_target(rows.rewards, rows.continues, values, config.discount)

    def by_member(changes: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
        return targets(world.outcome(config.termination, rows.observations, rows.actions, changes))

    means, _ = world.target_dynamics.distribution(world.inputs(rows.observations, rows.actions))
    return jnp.abs(targets(rows) - jax.vmap(by_member)(means).mean(axis=0)) / actor_critic.rewards.unit[0]


def observe_with_reward(
    config: ModelConfig,
    state: AnyState,
    transition: Transitions,
    reward: Float[Array, ""],
    continues: Float[Array, ""],
) -> AnyState:
    """The same, for an agent whose critics learn from another reward than the task's."""
    key, noise_key = jax.random.split(state.key)
    learned_from = transition._replace(rewards=reward, continues=continues)
    actor_critic = parts.observe(config, state.actor_critic, learned_from, noise_key)
    statistics = state.world.statistics.add(transition)
    return eqx.tree_at(lambda s: (s.actor_critic, s.world.statistics, s.key), state, (actor_critic, statistics, key))


def imagine(config: ModelConfig, world: World, actor: Actor, batch: Transitions, key: PRNGKeyArray) -> Transitions:
    """Experience from the target network: steps from real states, the first with the real action in a share of them.

    Longer rollouts go on with the policy's actions; a row whose episode has probably ended starts again at its
    real state.
    """
    given = int(config.real_action_ratio * len(batch.rewards))
    first_key, model_key, rollout_key = jax.random.split(key, 3)
    chosen, _ = actor.sample(batch.observations[given:], first_key)
    actions = jnp.concatenate([batch.actions[:given], chosen])
    first = world.step(world.target_dynamics, config.termination, batch.observations, actions, model_key)
    if config.rollout_length == 1:
        return first

    def next_step(last: Transitions, key: PRNGKeyArray) -> tuple[Transitions, Transitions]:
        policy_key, model_key = jax.random.split(key)
        alive = last.continues[:, None] > 0.5
        observations = jnp.where(alive, last.next_observations, batch.observations)
        actions, _ = actor.sample(observations, policy_key)
        step = world.step(world.target_dynamics, config.termination, observations, actions, model_key)
        return step, step

    _, later = jax.lax.scan(next_step, first, jax.random.split(rollout_key, config.rollout_length - 1))
    return jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]).reshape(-1, *one.shape[1:]), first, later)


def real_rows(config: ModelConfig) -> int:
    """How many rows of a batch are real."""
    return round(config.real_ratio * config.batch_size)


def sample_experience(
    config: ModelConfig, replay: Replay, model_buffer: Replay, key: PRNGKeyArray, batches: int
) -> Transitions:
    """Batches for the critics or the policy, [batches, rows]: in each first the real rows, then the model's."""
    real_key, model_key = jax.random.split(key)
    count = real_rows(config)
    real = replay.sample_batches(real_key, batches, count)
    model = model_buffer.sample_batches(model_key, batches, config.batch_size - count)
    return jax.tree.map(lambda *columns: jnp.concatenate(columns, axis=1), real, model)


def trusted_td_steps(
    config: ModelConfig, state: AgentState, experience: Transitions, key: PRNGKeyArray
) -> tuple[ActorCritic, Metrics]:
    """Steps of the critics on batches of experience: real rows, and the model's, which weigh as much as it is trusted.

    A model that errs about what decides the return, a contact say, then does no harm; one that does not is used.
    """
    trust = state.world.trust.value
    weights = jnp.where(jnp.arange(config.batch_size) < real_rows(config), 1.0, trust)
    actor_critic, metrics = td_steps(config, state.actor_critic, experience, key, weights=weights)
    return actor_critic, metrics | {"model_trust": trust}


def update_dynamics(
    config: ModelConfig,
    world: World,
    batch: Transitions,
    loss: Callable[[Float[Array, "members batch"], GaussianDynamics, Array], Float[Array, ""]],
) -> tuple[World, Metrics]:
    """One step of the dynamics down `loss` of (nll of each row by each member, dynamics, normalized inputs).

    All members see the same rows; then the target network follows.
    """
    inputs = world.inputs(batch.observations, batch.actions)
    changes = world.changes(batch.observations, batch.next_observations)

    def objective(dynamics: GaussianDynamics) -> Float[Array, ""]:
        nlls = gaussian_nll(*dynamics.distribution(inputs), changes, config.nll_beta)
        return loss(nlls, dynamics, inputs)

    value, gradient = jax.value_and_grad(objective)(world.dynamics)
    return moved_dynamics(config, world, gradient), {"model_loss": value}


def model_step(
    config: ModelConfig, statistics: Statistics, network: Network, optimiser: optax.OptState, gradient: Network
) -> tuple[Network, optax.OptState]:
    """One step of one of the model's networks."""
    rate, decay = config.model_learning_rate, config.model_weight_decay
    return decayed_step(rate, decay, statistics, network, optimiser, gradient)


def decayed_step(
    learning_rate: float,
    weight_decay: float,
    statistics: Statistics,
    network: Network,
    optimiser: optax.OptState,
    gradient: Network,
) -> tuple[Network, optax.OptState]:
    """Adam's step, and the weights' decay."""
    moved, optimiser = adam_step(learning_rate, network, optimiser, gradient)
    if weight_decay > 0:
        decay = weight_decay * jnp.minimum(1.0, PRIOR_ROWS / statistics.observations.count)
        moved = jax.tree.map(lambda new, old: new - learning_rate * decay * old, moved, network)
    return moved, optimiser


def moved_dynamics(config: ModelConfig, world: World, gradient: GaussianDynamics) -> World:
    """The dynamics after one step of their optimiser, and their target network behind them."""
    dynamics, optimiser = model_step(config, world.statistics, world.dynamics, world.dynamics_optimiser, gradient)
    target = moved_target(world.target_dynamics, dynamics, config.model_target_rate)
    return eqx.tree_at(
        lambda w: (w.dynamics, w.target_dynamics, w.dynamics_optimiser), world, (dynamics, target, optimiser)
    )


def update_heads(config: ModelConfig, world: World, batch: Transitions) -> tuple[World, Metrics]:
    """One step of the reward network (squared error) and of the termination network (cross-entropy), on real rows.

    A task that declares its termination function needs no termination network; without it, it learns from the first end
    of an episode on.
    """
    inputs = world.inputs(batch.observations, batch.actions)
    rewards = world.statistics.rewards.normalize(batch.rewards[:, None])

    def rewards_objective(network: MLP) -> Float[Array, ""]:
        return ((network(inputs) - rewards) ** 2).mean()

    rewards_value, gradient = jax.value_and_grad(rewards_objective)(world.reward_head)
    network, reward_optimiser = model_step(
        config, world.statistics, world.reward_head, world.reward_optimiser, gradient
    )
    world = eqx.tree_at(lambda w: (w.reward_head, w.reward_optimiser), world, (network, reward_optimiser))
    metrics = {"reward_loss": rewards_value}
    if config.termination is not None:
        return world, metrics

    def continues_objective(network: MLP) -> Float[Array, ""]:
        logits = world.continue_logits(network, batch.observations, batch.actions, batch.next_observations)
        return optax.sigmoid_binary_cross_entropy(logits, batch.continues).mean()

    def learn(network: MLP, optimiser: optax.OptState) -> tuple[MLP, optax.OptState, Array]:
        value, gradient = jax.value_and_grad(continues_objective)(network)
        return *model_step(config, world.statistics, network, optimiser, gradient), value

    def wait(network: MLP, optimiser: optax.OptState) -> tuple[MLP, optax.OptState, Array]:
        return network, optimiser, jnp.zeros(())

    ended = world.statistics.ends > 0  # nobody asks the network before that
    network, termination_optimiser, value = jax.lax.cond(
        ended, learn, wait, world.termination_head, world.termination_optimiser
    )
    world = eqx.tree_at(
        lambda w: (w.termination_head, w.termination_optimiser), world, (network, termination_optimiser)
    )
    return world, metrics | {"continue_loss": value}
