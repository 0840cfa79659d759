"""What the loop knows of an algorithm: a few pure functions, and the jitted programs made of them.

Every program takes one agent, or with `many` several seeds' agents stacked along a first axis: state, replay,
transitions and observations then all have it, and the seeds are one vmapped program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.replay import Replay, Transitions

Metrics = dict[str, Float[Array, ""]]

State = Any
"""An algorithm's own PyTree: all have `actor_critic` and `key`, the model-based ones `world`, some `classifier`."""

Observe = Callable[[Any, State, Transitions], State]
"""(config, state, one real transition) -> the agent with its running statistics moved."""

Update = Callable[[Any, State, Replay, Array], tuple[State, Metrics]]
"""(config, state, replay, number of the update, the warm-up's counted too) -> new state, metrics."""


MAY_BE_ZERO = (
    *("warmup_updates", "value_delay", "value_weight", "likelihood_weight"),
    *("model_weight_decay", "classifier_weight_decay"),
    *("reward_offset", "input_noise", "smoothing", "discount", "real_ratio", "real_action_ratio"),
)
BELOW_ONE = ("discount", "smoothing", "target_rate", "slow_model_rate", "real_ratio")
ANY_SIGN = ("target_entropy",)


class ConfigError(ValueError):
    """A setting with a value that it cannot have."""


@dataclass(frozen=True)
class AgentConfig:
    """What the loop needs to know; every algorithm's settings begin with it."""

    random_steps: int = 10_000
    """Real steps with uniformly random actions before anything is learned."""
    random_episode_steps: int | None = 100
    """Episodes of random actions are cut off after so many steps, so that there are many starts among them; none: they
    are as long as the task's."""
    updates_per_step: int = 20
    """Updates after every real step."""
    replay_capacity: int = 1_000_000
    """How many real transitions are kept."""
    discount: float = 0.99

    def __post_init__(self) -> None:
        """Refuse values that no run can have."""
        for field in fields(self):
            _check(field.name, getattr(self, field.name))


@dataclass(frozen=True, eq=False)
class Algorithm:
    """One algorithm, as pure functions."""

    name: str
    title: str
    presets: Mapping[str, AgentConfig]
    """Settings by scale: paper, cpu, quick."""
    init: Callable[[Any, int, int, PRNGKeyArray], State]
    """(config, observation_dim, action_dim, key) -> a new agent."""
    observe: Observe
    """The statistics that normalize, moved by one real transition."""
    update: Update
    """One update of everything."""
    warm_up: Update | None = None
    """One update of the model alone; agents without a model have none."""
    log_returns: bool = False
    """Whether Q is a bound on the logarithm of the return: then the rewards must be positive."""
    ends_need_offset: bool = False
    """Whether the end of an episode, which pays the reward offset for ever, must pay more than 0."""


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def new_agents(
    algorithm: Algorithm, config: AgentConfig, observation_dim: int, action_dim: int, keys: PRNGKeyArray
) -> State:
    """An agent from a key, or stacked agents from several."""
    init = partial(algorithm.init, config, observation_dim, action_dim)
    return jax.vmap(init)(keys) if keys.ndim else init(keys)


@partial(jax.jit, static_argnums=(0, 1), static_argnames="many", donate_argnums=(2, 3))
def store(
    observe: Observe, config: AgentConfig, state: State, replay: Replay, transition: Transitions, *, many: bool
) -> tuple[State, Replay]:
    """One real transition more in the replay, and in the agent's statistics."""

    def one(state: State, replay: Replay, transition: Transitions) -> tuple[State, Replay]:
        return observe(config, state, transition), _add(replay, transition)

    return (jax.vmap(one) if many else one)(state, replay, transition)


@partial(jax.jit, static_argnames="many", donate_argnums=0)
def act(
    state: State, observation: Float[Array, "*seeds obs"], *, many: bool
) -> tuple[State, Float[Array, "*seeds act"]]:
    """An action of the stochastic policy."""
    return (jax.vmap(_act) if many else _act)(state, observation)


@partial(jax.jit, static_argnums=(0, 1, 5), static_argnames="many", donate_argnums=2)
def update_many(
    update: Update, config: AgentConfig, state: State, replay: Replay, number: Array | int, count: int, *, many: bool
) -> tuple[State, Metrics]:
    """`count` updates (an algorithm's `update` or `warm_up`) in one program, sampling inside; metrics are averages."""

    def one(state: State, replay: Replay) -> tuple[State, Metrics]:
        return _scan(update, config, state, replay, number, count)

    return (jax.vmap(one) if many else one)(state, replay)


@partial(jax.jit, static_argnums=(0, 1, 7), static_argnames="many", donate_argnums=(2, 3))
def train_step(
    algorithm: Algorithm,
    config: AgentConfig,
    state: State,
    replay: Replay,
    transition: Transitions,
    observation: Float[Array, "*seeds obs"],
    number: Array | int,
    count: int,
    *,
    many: bool,
) -> tuple[State, Replay, Float[Array, "*seeds act"], Metrics]:
    """A real step's work as one program: store the transition, make `count` updates, choose the next action."""

    def one(
        state: State, replay: Replay, transition: Transitions, observation: Array
    ) -> tuple[State, Replay, Array, Metrics]:
        state, replay = algorithm.observe(config, state, transition), _add(replay, transition)
        state, metrics = _scan(algorithm.update, config, state, replay, number, count)
        state, action = _act(state, observation)
        return state, replay, action, metrics

    return (jax.vmap(one) if many else one)(state, replay, transition, observation)


def _check(name: str, value: Any) -> None:
    """Numbers are finite and positive (or 0, or below 1, see above); layers have a size."""
    if isinstance(value, tuple):
        if any(size < 1 for size in value):
            raise ConfigError(f"{name} is {value}, but every layer needs at least 1 unit")
    elif isinstance(value, int | float) and not isinstance(value, bool) and name not in ANY_SIGN:
        low = "0 or more" if name in MAY_BE_ZERO else "above 0"
        good = value >= 0 if name in MAY_BE_ZERO else value > 0
        if not (good and value < (1 if name in BELOW_ONE else float("inf"))):
            high = " and below 1" if name in BELOW_ONE else ""
            raise ConfigError(f"{name} is {value}, but must be {low}{high}")


def _add(replay: Replay, transition: Transitions) -> Replay:
    return replay.add(jax.tree.map(lambda value: value[None], transition))


def _act(state: State, observation: Float[Array, " obs"]) -> tuple[State, Float[Array, " act"]]:
    key, action_key = jax.random.split(state.key)
    actions, _ = state.actor_critic.actor.sample(observation[None], action_key)
    return eqx.tree_at(lambda s: s.key, state, key), actions[0]


def _scan(
    update: Update, config: AgentConfig, state: State, replay: Replay, number: Array | int, count: int
) -> tuple[State, Metrics]:
    def step(state: State, number: Array) -> tuple[State, Metrics]:
        return update(config, state, replay, number)

    state, metrics = jax.lax.scan(step, state, number + jnp.arange(count))
    return state, jax.tree.map(jnp.mean, metrics)
