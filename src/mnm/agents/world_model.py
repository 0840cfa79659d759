"""What the model-based agents share: dynamics with a slow copy, reward and continuation networks, imagined experience.

Every network sees whitened inputs. The statistics are set by `prepare`, which the loop calls when the random steps are
over and then whenever the real transitions have doubled. From the second time on the first and last layers are changed
with them, so that no network's function of the data jumps; new networks are made for whitened data and stay as they
are.
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
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mnm.agents.actor_critic import ActorCritic, ActorCriticConfig, adam_step, init_actor_critic
from mnm.agents.algorithm import Metrics
from mnm.losses.model import gaussian_nll
from mnm.networks import (
    MLP,
    GaussianDynamics,
    TanhGaussianPolicy,
    Whitening,
    rewhitened_inputs,
    rewhitened_outputs,
    slow_copy,
)
from mnm.replay import Replay, Transitions

Termination = Callable[[Array, Array, Array], Bool[Array, " batch"]]
"""(observations, actions, next observations) -> whether the episode ended there, in JAX."""


@dataclass(frozen=True)
class ModelConfig(ActorCriticConfig):
    """Settings of every model-based agent; the defaults are the paper's."""

    model_hidden: tuple[int, ...] = (256, 256, 256, 256)
    """Hidden layers of each dynamics model."""
    members: int = 5
    """How many dynamics models."""
    outcome_hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward network and of the network for the probability that the episode goes on."""
    slow_model_rate: float = 0.001
    """How fast the slow copy of the dynamics, which makes the experience, follows."""
    model_buffer: int = 256_000
    """How many imagined transitions are kept."""
    rollout_length: int = 1
    """Steps in the model from each real state."""
    warmup_updates: int = 100_000
    """Updates of the model alone, when the random steps are over and before the policy starts to learn."""
    termination: Annotated[Termination | None, tyro.conf.Suppress] = None
    """The task's own termination function, instead of a learned one."""


SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "cpu": {
        "hidden": (128, 128),
        "model_hidden": (64, 64, 64),
        "outcome_hidden": (64, 64),
        "random_steps": 1_000,
        "warmup_updates": 5_000,
        "updates_per_step": 10,
    },
    "quick": {
        "hidden": (64, 64),
        "model_hidden": (32, 32),
        "outcome_hidden": (32, 32),
        "batch_size": 128,
        "random_steps": 200,
        "warmup_updates": 250,
        "updates_per_step": 2,
        "model_buffer": 20_000,
    },
}
"""What each scale changes."""


class Statistics(eqx.Module):
    """What whitens the networks' inputs and outputs, and the range of the rewards seen."""

    inputs: Whitening
    """Of (s, a)."""
    changes: Whitening
    """Of s' - s."""
    rewards: Whitening
    lowest_reward: Float[Array, ""]
    highest_reward: Float[Array, ""]


class World(eqx.Module):
    """The learned model of the task, and one optimiser's state for each network."""

    statistics: Statistics
    dynamics: GaussianDynamics
    slow_dynamics: GaussianDynamics
    rewards: MLP
    """Whitened (s, a) -> whitened r."""
    continues: MLP
    """Whitened (s, a, s' - s) -> logit of the probability that the episode goes on."""
    dynamics_optimiser: optax.OptState
    rewards_optimiser: optax.OptState
    continues_optimiser: optax.OptState

    def inputs(self, observations: Array, actions: Array) -> Array:
        """Whitened (s, a)."""
        return self.statistics.inputs.whiten(jnp.concatenate([observations, actions], axis=-1))

    def changes(self, observations: Array, next_observations: Array) -> Array:
        """Whitened s' - s."""
        return self.statistics.changes.whiten(next_observations - observations)

    def next_observations(self, observations: Array, changes: Array) -> Array:
        """s' from s and the whitened change."""
        return observations + self.statistics.changes.restore(changes)

    def predicted_rewards(self, inputs: Array) -> Array:
        """r(s, a), kept within the range of the rewards seen: a logarithm must not meet a stray negative one."""
        rewards = self.statistics.rewards.restore(self.rewards(inputs))[..., 0]
        return jnp.clip(rewards, self.statistics.lowest_reward, self.statistics.highest_reward)

    def step(
        self,
        dynamics: GaussianDynamics,
        termination: Termination | None,
        observations: Float[Array, "batch obs"],
        actions: Float[Array, "batch act"],
        key: PRNGKeyArray,
    ) -> Transitions:
        """One step in the model; `continues` is the probability to go on."""
        inputs = self.inputs(observations, actions)
        changes = dynamics.sample(inputs, key)
        next_observations = self.next_observations(observations, changes)
        if termination is None:
            continues = jax.nn.sigmoid(self.continues(jnp.concatenate([inputs, changes], axis=-1))[..., 0])
        else:
            continues = 1.0 - termination(observations, actions, next_observations).astype(jnp.float32)
        return Transitions(observations, actions, self.predicted_rewards(inputs), next_observations, continues)


class AgentState(eqx.Module):
    """All of an agent that learns a model; those with a classifier have it beside this."""

    actor_critic: ActorCritic
    world: World
    imagined: Replay
    key: PRNGKeyArray


AnyState = TypeVar("AnyState", bound=AgentState)


def init(config: ModelConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> AgentState:
    """A new agent without a classifier."""
    key, actor_critic_key, world_key = jax.random.split(key, 3)
    return AgentState(
        init_actor_critic(config, observation_dim, action_dim, actor_critic_key),
        init_world(config, observation_dim, action_dim, world_key),
        Replay.empty(config.model_buffer, observation_dim, action_dim),
        key,
    )


def init_world(config: ModelConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> World:
    """New networks; the slow copy starts equal to the dynamics."""
    dynamics_key, rewards_key, continues_key = jax.random.split(key, 3)
    inputs = observation_dim + action_dim
    statistics = Statistics(
        Whitening.identity(inputs),
        Whitening.identity(observation_dim),
        Whitening.identity(1),
        jnp.asarray(-jnp.inf, jnp.float32),
        jnp.asarray(jnp.inf, jnp.float32),
    )
    dynamics = GaussianDynamics(dynamics_key, observation_dim, action_dim, config.model_hidden, config.members)
    rewards = MLP(rewards_key, (inputs, *config.outcome_hidden, 1))
    continues = MLP(continues_key, (inputs + observation_dim, *config.outcome_hidden, 1))
    optimiser = optax.adam(config.learning_rate)
    states = (optimiser.init(network) for network in (dynamics, rewards, continues))
    return World(statistics, dynamics, jax.tree.map(jnp.copy, dynamics), rewards, continues, *states)


def prepare_world(world: World, replay: Replay, size: int) -> World:
    """The world with the statistics of the `size` transitions stored; what a network has learned it keeps."""
    stored = jax.tree.map(lambda rows: rows[:size], replay.storage)
    statistics = Statistics(
        Whitening.of(jnp.concatenate([stored.observations, stored.actions], axis=-1)),
        Whitening.of(stored.next_observations - stored.observations),
        Whitening.of(stored.rewards[:, None]),
        stored.rewards.min(),
        stored.rewards.max(),
    )
    old = statistics_before(world, statistics)

    def rewhitened_dynamics(dynamics: GaussianDynamics) -> GaussianDynamics:
        members = tuple(
            rewhitened_outputs(
                rewhitened_inputs(member, old.inputs, statistics.inputs), old.changes, statistics.changes
            )
            for member in dynamics.network.members
        )
        return eqx.tree_at(lambda d: d.network.members, dynamics, members)

    return eqx.tree_at(
        lambda w: (w.statistics, w.dynamics, w.slow_dynamics, w.rewards, w.continues),
        world,
        (
            statistics,
            rewhitened_dynamics(world.dynamics),
            rewhitened_dynamics(world.slow_dynamics),
            rewhitened_outputs(
                rewhitened_inputs(world.rewards, old.inputs, statistics.inputs), old.rewards, statistics.rewards
            ),
            rewhitened_inputs(world.continues, transition_whitening(old), transition_whitening(statistics)),
        ),
    )


def statistics_before(world: World, new: Statistics) -> Statistics:
    """Those that the networks were trained with. Networks that have had none are as good for the new ones."""
    first = jnp.isneginf(world.statistics.lowest_reward)
    before: Statistics = jax.tree.map(lambda old, now: jnp.where(first, now, old), world.statistics, new)
    return before


def transition_whitening(statistics: Statistics) -> Whitening:
    """Of (s, a, s' - s)."""
    parts = (statistics.inputs, statistics.changes)
    return Whitening(*(jnp.concatenate([getattr(part, name) for part in parts]) for name in ("mean", "std")))


def prepare(state: AnyState, replay: Replay, size: int) -> AnyState:
    """The agent with the world's statistics set from the `size` transitions stored."""
    return eqx.tree_at(lambda s: s.world, state, prepare_world(state.world, replay, size))


def imagine(
    config: ModelConfig, world: World, policy: TanhGaussianPolicy, batch: Transitions, key: PRNGKeyArray
) -> Transitions:
    """Experience from the slow copy: steps from real states, the first with the real action in half of the rows.

    Longer rollouts go on with the policy's actions; a row whose episode has probably ended starts again at its
    real state.
    """
    half = len(batch.rewards) // 2
    first_key, model_key, rollout_key = jax.random.split(key, 3)
    chosen, _ = policy.sample(batch.observations[half:], first_key)
    actions = jnp.concatenate([batch.actions[:half], chosen])
    first = world.step(world.slow_dynamics, config.termination, batch.observations, actions, model_key)
    if config.rollout_length == 1:
        return first

    def go_on(last: Transitions, key: PRNGKeyArray) -> tuple[Transitions, Transitions]:
        policy_key, model_key = jax.random.split(key)
        alive = last.continues[:, None] > 0.5
        observations = jnp.where(alive, last.next_observations, batch.observations)
        actions, _ = policy.sample(observations, policy_key)
        step = world.step(world.slow_dynamics, config.termination, observations, actions, model_key)
        return step, step

    _, later = jax.lax.scan(go_on, first, jax.random.split(rollout_key, config.rollout_length - 1))
    return jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]).reshape(-1, *one.shape[1:]), first, later)


def update_dynamics(
    config: ModelConfig,
    world: World,
    batch: Transitions,
    loss: Callable[[Float[Array, "members batch"], GaussianDynamics, Array], Float[Array, ""]],
) -> tuple[World, Metrics]:
    """One step of the dynamics down `loss` of (nll of each row by each member, dynamics, whitened inputs).

    All members see the same rows; then the slow copy follows.
    """
    inputs = world.inputs(batch.observations, batch.actions)
    changes = world.changes(batch.observations, batch.next_observations)

    def objective(dynamics: GaussianDynamics) -> Float[Array, ""]:
        return loss(gaussian_nll(*dynamics.distribution(inputs), changes), dynamics, inputs)

    value, gradient = jax.value_and_grad(objective)(world.dynamics)
    return moved_dynamics(config, world, gradient), {"model_loss": value}


def moved_dynamics(config: ModelConfig, world: World, gradient: GaussianDynamics) -> World:
    """The dynamics after one step of their optimiser, and their slow copy behind them."""
    dynamics, optimiser = adam_step(config, world.dynamics, world.dynamics_optimiser, gradient)
    slow = slow_copy(world.slow_dynamics, dynamics, config.slow_model_rate)
    return eqx.tree_at(
        lambda w: (w.dynamics, w.slow_dynamics, w.dynamics_optimiser), world, (dynamics, slow, optimiser)
    )


def update_outcomes(config: ModelConfig, world: World, batch: Transitions) -> tuple[World, Metrics]:
    """One step of the reward network (squared error) and of the continuation network (cross-entropy), on real rows.

    A task that declares its termination function needs no continuation network.
    """
    inputs = world.inputs(batch.observations, batch.actions)
    rewards = world.statistics.rewards.whiten(batch.rewards[:, None])

    def rewards_objective(network: MLP) -> Float[Array, ""]:
        return ((network(inputs) - rewards) ** 2).mean()

    rewards_value, gradient = jax.value_and_grad(rewards_objective)(world.rewards)
    network, rewards_optimiser = adam_step(config, world.rewards, world.rewards_optimiser, gradient)
    world = eqx.tree_at(lambda w: (w.rewards, w.rewards_optimiser), world, (network, rewards_optimiser))
    metrics = {"reward_loss": rewards_value}
    if config.termination is not None:
        return world, metrics

    changes = world.changes(batch.observations, batch.next_observations)
    transitions = jnp.concatenate([inputs, changes], axis=-1)

    def continues_objective(network: MLP) -> Float[Array, ""]:
        return optax.sigmoid_binary_cross_entropy(network(transitions)[:, 0], batch.continues).mean()

    continues_value, gradient = jax.value_and_grad(continues_objective)(world.continues)
    network, continues_optimiser = adam_step(config, world.continues, world.continues_optimiser, gradient)
    world = eqx.tree_at(lambda w: (w.continues, w.continues_optimiser), world, (network, continues_optimiser))
    return world, metrics | {"continue_loss": continues_value}
