"""The jitted programs of the loop, made of an algorithm's pure functions.

Every program takes one agent, or with `many` several seeds' agents stacked along a first axis: state, replay,
transitions and observations then all have it, and the seeds are one vmapped program.
"""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.algorithm import Algorithm, State, Update
from mnm.agents.base import AgentConfig, Metrics
from mnm.compiled import program
from mnm.replay import Replay, Transitions


@program(static=("algorithm", "config", "observation_dim", "action_dim"))
def new_agents(
    algorithm: Algorithm, config: AgentConfig, observation_dim: int, action_dim: int, keys: PRNGKeyArray
) -> State:
    """An agent from a key, or stacked agents from several."""
    init = partial(algorithm.init, config, observation_dim, action_dim)
    return jax.vmap(init)(keys) if keys.ndim else init(keys)


@program(static=("algorithm", "config", "many"), donate=("state", "replay"))
def store(
    algorithm: Algorithm, config: AgentConfig, state: State, replay: Replay, transition: Transitions, *, many: bool
) -> tuple[State, Replay]:
    """One real transition more in the replay, and in the agent's statistics."""

    def one(state: State, replay: Replay, transition: Transitions) -> tuple[State, Replay]:
        return algorithm.observe(config, state, transition), _add(replay, transition)

    return (jax.vmap(one) if many else one)(state, replay, transition)


@program(static=("algorithm", "config", "many"), donate=("state",))
def observe_rows(algorithm: Algorithm, config: AgentConfig, state: State, rows: Transitions, *, many: bool) -> State:
    """Rows of a data set, one after the other, in the agent's statistics; every seed sees the same."""

    def one(state: State) -> State:
        return jax.lax.scan(lambda state, row: (algorithm.observe(config, state, row), None), state, rows)[0]

    return (jax.vmap(one) if many else one)(state)


@program(static=("many",), donate=("replay",))
def add_rows(replay: Replay, rows: Transitions, *, many: bool) -> Replay:
    """Rows of a data set in the replay, in place of the oldest if it is full; every seed gets the same."""
    return (jax.vmap(lambda replay: replay.add(rows)) if many else lambda replay: replay.add(rows))(replay)


@program(static=("many",), donate=("state",))
def act(
    state: State, observation: Float[Array, "*seeds obs"], *, many: bool
) -> tuple[State, Float[Array, "*seeds act"]]:
    """An action of the stochastic policy."""
    return (jax.vmap(_act) if many else _act)(state, observation)


@program(static=("update", "config", "count", "many"), donate=("state",))
def update_many(
    update: Update,
    config: AgentConfig,
    state: State,
    replay: Replay,
    update_step: Array | int,
    count: int,
    *,
    many: bool,
) -> tuple[State, Metrics]:
    """`count` updates (an algorithm's `update` or `warm_up`) in one program, sampling inside; metrics are averages."""

    def one(state: State, replay: Replay) -> tuple[State, Metrics]:
        return _scan(update, config, state, replay, update_step, count)

    return (jax.vmap(one) if many else one)(state, replay)


@program(static=("algorithm", "config", "count", "many"), donate=("state", "replay"))
def train_step(
    algorithm: Algorithm,
    config: AgentConfig,
    state: State,
    replay: Replay,
    transition: Transitions,
    observation: Float[Array, "*seeds obs"],
    update_step: Array | int,
    count: int,
    *,
    many: bool,
) -> tuple[State, Replay, Float[Array, "*seeds act"], Metrics]:
    """A real step's work as one program: store the transition, make `count` updates, choose the next action."""

    def one(
        state: State, replay: Replay, transition: Transitions, observation: Array
    ) -> tuple[State, Replay, Array, Metrics]:
        state, replay = algorithm.observe(config, state, transition), _add(replay, transition)
        state, metrics = _scan(algorithm.update, config, state, replay, update_step, count)
        state, action = _act(state, observation)
        return state, replay, action, metrics

    return (jax.vmap(one) if many else one)(state, replay, transition, observation)


def _add(replay: Replay, transition: Transitions) -> Replay:
    return replay.add(jax.tree.map(lambda value: value[None], transition))


def _act(state: State, observation: Float[Array, " obs"]) -> tuple[State, Float[Array, " act"]]:
    key, action_key = jax.random.split(state.key)
    actions, _ = state.actor_critic.actor.sample(observation[None], action_key)
    return eqx.tree_at(lambda s: s.key, state, key), actions[0]


def _scan(
    update: Update, config: AgentConfig, state: State, replay: Replay, update_step: Array | int, count: int
) -> tuple[State, Metrics]:
    def step(state: State, update_step: Array) -> tuple[State, Metrics]:
        return update(config, state, replay, update_step)

    state, metrics = jax.lax.scan(step, state, update_step + jnp.arange(count))
    return state, jax.tree.map(jnp.mean, metrics)
