"""Probe problems with known answers, as replays that cover them, for agents that never see an environment."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mnm.agents.world_model import Statistics
from mnm.networks import MLP, GaussianDynamics
from mnm.replay import Replay, Transitions

ROWS = 4000


def filled(observations, actions, rewards, next_observations, continues):
    """A replay of transitions with one-dimensional observations, from arrays of one length."""
    columns = (observations, actions, rewards, next_observations, continues)
    observations, actions, rewards, next_observations, continues = (jnp.asarray(x, jnp.float32) for x in columns)
    transitions = Transitions(observations[:, None], actions, rewards, next_observations[:, None], continues)
    return Replay.empty(len(rewards), 1, 1).add(transitions)


def the_statistics_are_those_of(normalizer, data, std_atol=1e-6):
    """Count, mean, deviation and range."""
    data = np.asarray(data, np.float64)
    assert float(normalizer.count) == len(data)
    np.testing.assert_allclose(normalizer.mean, data.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(normalizer.std, data.std(axis=0), rtol=1e-3, atol=std_atol)
    np.testing.assert_array_equal(normalizer.lowest, data.min(axis=0).astype(np.float32))
    np.testing.assert_array_equal(normalizer.highest, data.max(axis=0).astype(np.float32))


def stacked(trees):
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


def random_actions(count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 1))


def action_pays(actions):
    """2 at 0.5, less on both sides."""
    return 2 * np.exp(-(((np.asarray(actions) - 0.5) / 0.4) ** 2) / 2)


def reward_on_the_action():
    """The reward hangs on the action alone; the states wander, and every episode ends at once."""
    noise = np.random.default_rng(1)
    actions = random_actions(ROWS)
    observations = noise.normal(size=ROWS)
    next_observations = observations + 0.5 * noise.normal(size=ROWS)
    return filled(observations, actions, action_pays(actions[:, 0]), next_observations, np.zeros(ROWS))


def state_pays(observations):
    return np.exp(np.asarray(observations))


def reward_one_step_later():
    """s' = a + noise, and the reward exp(s) hangs on the state alone: an action is paid for in the next step."""
    noise = np.random.default_rng(2)
    actions = random_actions(ROWS)
    observations = noise.uniform(-1.8, 1.8, ROWS)
    next_observations = actions[:, 0] + 0.3 * noise.normal(size=ROWS)
    return filled(observations, actions, state_pays(observations), next_observations, np.ones(ROWS))


def ends_on_the_right():
    """Every step pays 1 and hardly moves; right of 0 it ends the episode, left of 0 it goes on (is at most cut off)."""
    noise = np.random.default_rng(3)
    observations = np.where(np.arange(ROWS) % 2 == 0, -1.0, 1.0) * noise.uniform(1.0, 2.0, ROWS)
    next_observations = observations + 0.2 * noise.normal(size=ROWS)
    return filled(observations, random_actions(ROWS), np.ones(ROWS), next_observations, observations < 0)


def only_the_model_pays():
    """As `reward_one_step_later`, with states that cover what `hallucinating` dynamics lead to."""
    noise = np.random.default_rng(4)
    actions = random_actions(ROWS)
    observations = noise.uniform(-1.5, 2.5, ROWS)
    next_observations = actions[:, 0] + 0.3 * noise.normal(size=ROWS)
    return filled(observations, actions, state_pays(observations), next_observations, np.ones(ROWS))


PROBES = (reward_on_the_action, reward_one_step_later, ends_on_the_right, only_the_model_pays)


def hallucinating(dynamics: GaussianDynamics, statistics: Statistics) -> GaussianDynamics:
    """s' = a + 0.3 noise where a > 0, as in reality; but -2a where a < 0. For networks with one hidden layer.

    s' - s = relu(a) + 2 relu(-a) - relu(s) + relu(-s), with s and s' - s normalized by these statistics.
    """
    first, last = (jnp.zeros_like(weight) for weight in dynamics.network.members[0].weights)
    (mean,), (unit,) = statistics.observations.mean, statistics.observations.unit
    (drift,), (spread,) = statistics.changes.mean, statistics.changes.unit
    first = first.at[:, :4].set(jnp.array([[0.0, 0.0, unit, -unit], [1.0, -1.0, 0.0, 0.0]]))
    shift = jnp.zeros(first.shape[1]).at[:4].set(jnp.array([0.0, 0.0, mean, -mean]))
    last = last.at[:4, 0].set(jnp.array([1.0, 2.0, -1.0, 1.0]) / spread)
    soft_log_std = -jnp.log(spread / 0.3 - 1.0)  # the std is sigmoid of it: 0.3 in the data's units
    biases = (shift, jnp.array([-drift / spread, soft_log_std]))

    def set_by_hand(member: MLP) -> MLP:
        return eqx.tree_at(lambda n: (n.weights, n.biases), member, ((first, last), biases))

    members = tuple(map(set_by_hand, dynamics.network.members))
    # A copy of the arrays: buffers that are donated must not be shared.
    return jax.tree.map(jnp.copy, eqx.tree_at(lambda d: d.network.members, dynamics, members))
