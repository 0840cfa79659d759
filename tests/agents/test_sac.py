"""What is soft actor-critic's own; its probe problems are with those of all agents."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.probes import filled, random_actions
from mnm.agents.actor_critic import JUDGED_FROM, ActorCriticConfig
from mnm.agents.sac import init, observe, update
from mnm.normalizer import Normalizer
from mnm.training.programs import update_many

pytestmark = pytest.mark.slow

CONFIG = ActorCriticConfig(
    hidden=(32, 32), layer_norm=False, batch_size=128, learning_rate=3e-3, target_rate=0.05, discount=0.5
)


def one_state(rewards, actions, continues):
    nowhere = np.zeros(len(rewards))
    return filled(nowhere, actions, rewards, nowhere, np.full(len(rewards), continues))


@partial(jax.jit, static_argnums=0)
def new_agent(config, replay, key):
    """That has observed all of the replay."""
    dims = (replay.storage.observations.shape[1], replay.storage.actions.shape[1])
    agent = init(config, *dims, key)
    return jax.lax.scan(lambda agent, row: (observe(config, agent, row), None), agent, replay.storage)[0]


def train(replay, updates=1500, config=CONFIG, seed=0):
    return update_many(update, config, new_agent(config, replay, jax.random.key(seed)), replay, 0, updates, many=False)


def parabola(actions):
    return 1 - 4 * (actions[:, 0] - 0.5) ** 2


@pytest.mark.parametrize("target", [-0.5, -1.0])
def test_the_temperature_finds_the_entropy_s_target(target):
    """A reward that wants one action against an entropy of so much for the one dimension."""
    actions = random_actions(2000)
    config = replace(CONFIG, target_entropy=target)
    state, _ = train(one_state(10 * parabola(actions), actions, continues=0.0), updates=4000, config=config)
    _, log_probs = state.actor_critic.actor.sample(jnp.zeros((4096, 1)), jax.random.key(1))
    assert float(-log_probs.mean()) == pytest.approx(target, abs=0.2)


def test_the_unit_of_reward_does_not_matter():
    """Rewards a thousand times as large, and another constant on top: the same actions, and Q in those units."""
    actions = random_actions(2000)
    grid = jnp.linspace(-0.9, 0.9, 5)[:, None]
    found = []
    for scale, offset in ((1.0, 0.0), (1000.0, 500.0)):
        replay = one_state(scale * parabola(actions) + offset, actions, continues=0.0)
        actor_critic = train(replay)[0].actor_critic
        q = actor_critic.q_values(actor_critic.critics, jnp.zeros((5, 1)), grid).mean(axis=0)
        found.append((np.asarray(q - offset) / scale, actor_critic.actor.mode(jnp.zeros((1, 1)))[0, 0]))
    (q, mode), (scaled, scaled_mode) = found
    np.testing.assert_allclose(scaled, q, atol=0.1)
    assert float(scaled_mode) == pytest.approx(float(mode), abs=0.1)


def test_huge_rewards_stay_finite():
    state, metrics = train(one_state(np.full(50, 1e8), random_actions(50), continues=1.0), updates=20)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.actor_critic, metrics)))


def test_the_average_is_of_all_policies_at_first_and_then_follows_the_latest():
    replay = one_state(np.ones(50), random_actions(50), continues=0.0)
    config = replace(CONFIG, policy_average_rate=0.4)
    state, expected = new_agent(config, replay, jax.random.key(0)), None
    for step in range(1, 6):
        state, _ = update_many(update, config, state, replay, step, 1, many=False)
        latest = np.asarray(state.actor_critic.policy.network.biases[-1], np.float64)
        weight = max(1 / step, 0.4)  # means of one and two policies, then weights that fall
        expected = latest if expected is None else (1 - weight) * expected + weight * latest
        average = state.actor_critic.averaged_policy.network.biases[-1]
        np.testing.assert_allclose(average, expected, atol=1e-6)
    assert not np.allclose(average, latest, atol=1e-4)
    normalizer = state.actor_critic.averaged_actor.normalizer
    np.testing.assert_array_equal(normalizer.mean, state.actor_critic.observations.mean)


def test_without_an_average_the_latest_policy_is_evaluated():
    replay = one_state(np.ones(50), random_actions(50), continues=0.0)
    state, _ = train(replay, updates=3, config=replace(CONFIG, policy_average_rate=None))
    policies = state.actor_critic.policy, state.actor_critic.averaged_policy
    assert all(np.array_equal(*leaves) for leaves in zip(*map(jax.tree.leaves, policies), strict=True))


@pytest.mark.parametrize(("real", "direction"), [(-1.0, 1), (3.0, -1)])
def test_fresh_transitions_that_pay_less_than_q_promises_raise_the_pessimism(real, direction):
    """Q is learned from rewards of 1, then the task pays another one; a transition that is learned moves nothing."""
    replay = one_state(np.ones(500), random_actions(500), continues=0.0)
    config = replace(CONFIG, pessimism_rate=0.01, least_pessimism=0.0)
    state, metrics = train(replay, updates=JUDGED_FROM, config=config)
    assert float(state.actor_critic.pessimism) == float(metrics["pessimism"]) == 1.0  # nothing moves it while Q is new
    row = jax.tree.map(lambda column: column[0], replay.storage)
    as_learned = observe(config, state, row).actor_critic.pessimism
    surprised = observe(config, state, row._replace(rewards=jnp.asarray(real))).actor_critic.pessimism
    assert abs(float(as_learned) - 1.0) < 0.3 * abs(float(surprised) - 1.0)
    assert np.sign(float(surprised) - 1.0) == direction
    fixed = observe(replace(config, pessimism_rate=0.0), state, row._replace(rewards=jnp.asarray(real)))
    assert float(fixed.actor_critic.pessimism) == 1.0


@pytest.mark.parametrize(("continues", "least"), [(1.0, 0.0), (0.0, 0.7)])
def test_where_episodes_end_the_pessimism_has_a_floor(continues, least):
    """However much better than Q the transitions are."""
    replay = one_state(np.ones(500), random_actions(500), continues=0.0)
    config = replace(CONFIG, pessimism_rate=1.0, least_pessimism=0.7)
    state, _ = train(replay, updates=JUDGED_FROM, config=config)
    row = jax.tree.map(lambda column: column[0], replay.storage)._replace(continues=jnp.asarray(continues))
    fresh = eqx.tree_at(lambda s: s.actor_critic.continuation, state, Normalizer.empty(1))
    seen = observe(config, fresh, row)
    better = observe(config, seen, row._replace(rewards=jnp.asarray(1e3)))
    assert float(better.actor_critic.pessimism) == pytest.approx(least)
