"""What is soft actor-critic's own; its probe problems are with those of all agents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.probes import filled, random_actions
from mnm.agents.actor_critic import ActorCriticConfig
from mnm.agents.algorithm import update_many
from mnm.agents.sac import init, update

CONFIG = ActorCriticConfig(hidden=(32, 32), batch_size=128, learning_rate=3e-3, target_rate=0.05, discount=0.5)


def one_state(rewards, actions, continues):
    nowhere = np.zeros(len(rewards))
    return filled(nowhere, actions, rewards, nowhere, np.full(len(rewards), continues))


def train(replay, updates=1500, config=CONFIG, seed=0):
    dims = (replay.storage.observations.shape[1], replay.storage.actions.shape[1])
    return update_many(update, config, init(config, *dims, jax.random.key(seed)), replay, 0, updates, many=False)


def parabola(actions):
    return 1 - 4 * (actions[:, 0] - 0.5) ** 2


def test_the_temperature_finds_the_entropy_s_target():
    """A reward that wants one action against an entropy of -dim/2 = -1/2."""
    actions = random_actions(2000)
    state, _ = train(one_state(10 * parabola(actions), actions, continues=0.0), updates=4000)
    _, log_probs = state.actor_critic.policy.sample(jnp.zeros((4096, 1)), jax.random.key(1))
    assert float(-log_probs.mean()) == pytest.approx(-0.5, abs=0.2)


def test_huge_rewards_stay_finite():
    state, metrics = train(one_state(np.full(50, 1e8), random_actions(50), continues=1.0), updates=20)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.actor_critic, metrics)))
