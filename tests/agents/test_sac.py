"""What is soft actor-critic's own; its probe problems are with those of all agents."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.probes import filled, random_actions
from mnm.agents.actor_critic import ActorCriticConfig
from mnm.agents.sac import init, observe, update
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
