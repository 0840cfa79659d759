"""Soft actor-critic on probe problems with known answers, from a replay that covers them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.probes import critic, filled, random_actions
from mnm.agents.algorithm import update_many
from mnm.agents.sac import SACConfig, init, update

CONFIG = SACConfig(hidden=(32, 32), batch_size=128, learning_rate=3e-3, target_rate=0.05, discount=0.5)


def one_state(rewards, actions, continues):
    nowhere = np.zeros(len(rewards))
    return filled(nowhere, actions, rewards, nowhere, np.full(len(rewards), continues))


def train(replay, updates=1500, config=CONFIG, seed=0):
    dims = (replay.storage.observations.shape[1], replay.storage.actions.shape[1])
    return update_many(update, config, init(config, *dims, jax.random.key(seed)), replay, 0, updates, many=False)


def parabola(actions):
    return 1 - 4 * (actions[:, 0] - 0.5) ** 2


def test_reward_on_the_action():
    actions = random_actions(2000)
    state, _ = train(one_state(parabola(actions), actions, continues=0.0))
    assert float(state.actor_critic.policy.mode(jnp.zeros((1, 1)))[0, 0]) == pytest.approx(0.5, abs=0.1)
    assert critic(state, 0.0, 0.5) == pytest.approx(1.0, abs=0.1)
    assert critic(state, 0.0, -0.5) == pytest.approx(-3.0, abs=0.3)


def test_credit_over_two_steps():
    """From 0 the action's sign leads to 1 (which then pays 1) or to -1 (which pays 0); both then end."""
    actions = random_actions(4000)
    first = np.arange(4000) < 2000
    chosen = np.where(actions[:, 0] > 0, 1.0, -1.0)
    observations = np.where(first, 0.0, chosen)
    rewards = (~first) * (observations > 0)
    state, _ = train(filled(observations, actions, rewards, np.where(first, chosen, 0.0), first), updates=2500)
    assert float(state.actor_critic.policy.mode(jnp.zeros((1, 1)))[0, 0]) > 0.2
    # Half of the reward one step later; the entropy's share is the same for both signs.
    difference = critic(state, 0.0, 0.7) - critic(state, 0.0, -0.7)
    assert difference == pytest.approx(0.5, abs=0.15)


def test_an_episode_that_ends_does_not_bootstrap_and_one_cut_off_does():
    """One state that pays 1: worth 1 if the episode ends, 2 (and the entropy's share) if it goes on, discount 1/2."""
    rewards, actions = np.ones(500), random_actions(500)
    ended, cut_off = (train(one_state(rewards, actions, goes_on))[0] for goes_on in (0.0, 1.0))
    assert critic(ended, 0.0, 0.0) == pytest.approx(1.0, abs=0.1)
    # The entropy of actions in (-1, 1) is at most log 2; discounted, its share is temperature times that.
    share = float(cut_off.actor_critic.temperature) * np.log(2.0)
    assert 1.8 <= critic(cut_off, 0.0, 0.0) <= 2.2 + share


def test_the_temperature_finds_the_entropy_s_target():
    """A reward that wants one action against an entropy of -dim/2 = -1/2."""
    actions = random_actions(2000)
    state, _ = train(one_state(10 * parabola(actions), actions, continues=0.0), updates=4000)
    _, log_probs = state.actor_critic.policy.sample(jnp.zeros((4096, 1)), jax.random.key(1))
    assert float(-log_probs.mean()) == pytest.approx(-0.5, abs=0.2)


def test_the_same_seed_is_bit_equal_and_another_is_not():
    replay = one_state(np.ones(50), random_actions(50), continues=1.0)
    first, again, other = (jax.tree.leaves(train(replay, updates=20, seed=seed)[0].actor_critic) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_vmapped_seeds_equal_single_runs():
    replay = one_state(np.ones(50), random_actions(50), continues=1.0)
    keys = jax.random.split(jax.random.key(0), 4)

    @jax.jit
    def run(key):
        state, _ = jax.lax.scan(
            lambda state, number: update(CONFIG, state, replay, number), init(CONFIG, 1, 1, key), jnp.arange(10)
        )
        return state.actor_critic

    together = jax.vmap(run)(keys)
    for number, key in enumerate(keys):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(run(key)), strict=True):
            np.testing.assert_allclose(a[number], b, atol=1e-5)


def test_huge_rewards_stay_finite():
    state, metrics = train(one_state(np.full(50, 1e8), random_actions(50), continues=1.0), updates=20)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.actor_critic, metrics)))
