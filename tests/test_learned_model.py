"""The learned model as its user has it, against the networks and the diagnostics that it is made of."""

from dataclasses import replace

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import mnm
from mnm.agents.classifier import log_ratios
from mnm.diagnostics import imagined_returns, value_diagnostics
from mnm.messages import UserError
from mnm.replay import Transitions

pytestmark = pytest.mark.slow

SETTINGS = {
    "scale": "quick",
    "hidden": (8,),
    "batch_size": 8,
    "replay_capacity": 100,
    "learning_starts": 10_000,  # its networks never learn, and are not compiled to; its statistics follow the steps
    "ensemble_size": 3,
    "model_hidden": (8,),
    "head_hidden": (8,),
    "classifier_hidden": (8,),
    "model_buffer_capacity": 100,
    "reward_offset": 17.0,
}


@pytest.fixture(scope="module")
def agent():
    made = mnm.MnM("Pendulum-v1", seed=2, **SETTINGS).learn(22, evaluation_episodes=1)
    made.state = eqx.tree_at(lambda state: state.classifier.trust, made.state, jnp.asarray(0.5))
    yield made
    made.close()


@pytest.fixture(scope="module")
def plain():
    """Without a model and a classifier."""
    return mnm.SAC("Pendulum-v1", scale="quick", hidden=(8,), replay_capacity=100)


@pytest.fixture(scope="module")
def rows(agent):
    """Observations, torques, and both as the networks see them."""
    generator = np.random.default_rng(0)
    torques = generator.uniform(-2, 2, (6, 1)).astype(np.float32)
    observations = agent.replay.storage.observations[:6]
    return np.asarray(observations), torques, (observations, jnp.asarray(torques / 2))


def test_predictions_are_the_target_network_s_in_the_task_s_units(agent, rows):
    observations, torques, inputs = rows
    world = agent.state.world
    means, log_stds = world.target_dynamics.distribution(world.inputs(*inputs))
    changes = world.statistics.changes
    found = agent.model.predict(observations, torques)
    assert (found.mean.shape, found.std.shape) == ((3, 6, 3), (3, 6, 3))
    np.testing.assert_allclose(found.mean, observations + changes.mean + changes.std * means, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.std, np.exp(log_stds) * changes.std, rtol=1e-5)
    rewards = world.statistics.rewards
    expected = rewards.mean + rewards.std * world.reward_head(world.inputs(*inputs))
    np.testing.assert_allclose(found.reward, expected[:, 0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.continuation, 1.0)  # no episode has ever ended
    np.testing.assert_allclose(found.disagreement, found.mean.std(axis=0))
    assert all(isinstance(part, np.ndarray) for part in found)


def test_one_observation_has_no_axis_of_rows(agent, rows):
    observations, torques, _ = rows
    batch, one = agent.model.predict(observations, torques), agent.model.predict(observations[0], torques[0])
    assert (one.mean.shape, one.std.shape, one.reward.shape) == ((3, 3), (3, 3), ())
    np.testing.assert_allclose(one.mean, batch.mean[:, 0], rtol=1e-5, atol=1e-6)
    assert agent.model.sample(observations[0], torques[0], seed=0).next_observations.shape == (3,)
    assert agent.q_values(observations[0], torques[0]).shape == (2,)
    assert agent.log_ratio(observations[0], torques[0], observations[1]).shape == ()
    assert agent.model.rollout(observations[0], horizon=2).observations.shape == (3, 3)


def test_samples_have_the_mixture_s_moments_and_their_seed(agent, rows):
    observations, torques, _ = rows
    found = agent.model.predict(observations[0], torques[0])
    many = agent.model.sample(np.repeat(observations[:1], 6000, 0), np.repeat(torques[:1], 6000, 0), seed=1)
    variance = (found.std**2).mean(axis=0) + found.disagreement**2
    # Four standard errors; nothing here lies near the range seen, beyond which samples are moved back.
    assert (np.abs(many.next_observations.mean(axis=0) - found.mean.mean(axis=0)) < 4 * np.sqrt(variance / 6000)).all()
    first, again, other, new = (agent.model.sample(observations, torques, seed=seed) for seed in (5, 5, 6, None))
    np.testing.assert_array_equal(first.next_observations, again.next_observations)
    assert not np.array_equal(first.next_observations, other.next_observations)
    assert not np.array_equal(first.next_observations, new.next_observations)
    assert not np.array_equal(new.next_observations, agent.model.sample(observations, torques).next_observations)


def test_a_rollout_is_made_of_samples(agent, rows):
    observations, _, _ = rows
    own = agent.model.rollout(observations, horizon=4, seed=3)
    assert [part.shape for part in own] == [(5, 6, 3), (4, 6, 1), (4, 6), (4, 6), (4, 6)]
    np.testing.assert_array_equal(own.observations[0], observations)
    np.testing.assert_array_equal(own.actions[1], agent.predict(own.observations[1]))
    rewards = agent.model.predict(own.observations[2], own.actions[2]).reward
    np.testing.assert_allclose(own.rewards[2], rewards, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(own.alive, 1.0)
    # The same, of the policy as a function, and of its actions alone.
    for policy, horizon in ((agent.predict, 4), (own.actions, None)):
        again = agent.model.rollout(observations, policy, horizon, seed=3)
        np.testing.assert_array_equal(again.observations, own.observations)
        np.testing.assert_array_equal(again.log_ratio, own.log_ratio)
    same = agent.model.rollout(observations, np.full((2, 1), 0.5), seed=3)
    assert (same.actions == 0.5).all()
    assert same.actions.shape == (2, 6, 1)


def test_alive_is_what_came_before():
    continuation = np.array([[0.5], [0.0], [1.0]], np.float32)
    unused = np.zeros((3, 1), np.float32)
    alive = mnm.learned_model.Rollout(unused, unused, unused, continuation, None).alive
    np.testing.assert_array_equal(alive, [[1.0], [0.5], [0.0]])


def test_q_values_and_log_ratios_are_the_networks(agent, rows):
    observations, torques, inputs = rows
    actor_critic = agent.state.actor_critic
    expected = actor_critic.q_values(actor_critic.critics, *inputs)
    np.testing.assert_allclose(agent.q_values(observations, torques), expected, rtol=1e-5)
    after = np.roll(observations, 1, axis=0)
    transitions = Transitions(*inputs, jnp.zeros(6), jnp.asarray(after), jnp.zeros(6))
    ratios = log_ratios(agent.config, agent.state.world, agent.state.classifier, transitions, jax.random.key(7))
    found = agent.log_ratio(observations, torques, after, seed=7)
    np.testing.assert_allclose(found, 0.5 * ratios, rtol=1e-4, atol=1e-5)  # by the agent's trust in it


def test_the_bound_is_the_diagnostics(agent):
    episodes = agent.evaluate(0, 2)
    state, starts = agent.state, np.stack([episode.first for episode in episodes])
    parts = (state.actor_critic, state.world, state.classifier)
    metrics = imagined_returns(agent.config, True, 17.0, *parts, starts, 200, jax.random.key(2))
    assert agent.bound(episodes).bound == float(metrics["bound"])
    metrics = value_diagnostics(agent.algorithm, agent.config, state.actor_critic, episodes)
    assert agent.bound(episodes).log_return == metrics["log_return"]


@pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space")  # the task's own
def test_the_model_is_a_gymnasium_environment(agent):
    env = agent.model.as_env(max_episode_steps=3)
    check_env(env, skip_render_check=True)
    assert (env.observation_space, env.action_space) == (agent.observation_space, agent.action_space)
    start, _ = env.reset(seed=5)
    np.testing.assert_array_equal(start, gym.make("Pendulum-v1").reset(seed=5)[0])
    flags = []
    for _ in range(3):
        observation, reward, terminated, truncated, _ = env.step(np.array([1.5], np.float32))
        assert env.observation_space.contains(observation)
        assert isinstance(reward, float)
        flags.append((terminated, truncated))
    assert flags == [(False, False), (False, False), (False, True)]
    assert agent.model.as_env().max_episode_steps == 200
    stored = np.asarray(agent.replay.storage.observations[:22])
    start, _ = agent.model.as_env(starts="replay").reset(seed=0)
    assert (np.abs(stored - start).max(axis=1) < 1e-6).any()


def test_an_episode_ends_in_the_model_as_often_as_it_says(agent, monkeypatch):
    env = agent.model.as_env(max_episode_steps=500)
    env.reset(seed=0)
    always = mnm.learned_model.Sample(np.zeros(3, np.float32), np.float32(1.0), np.float32(0.75))
    monkeypatch.setattr(env._model, "sample", lambda *_: always)
    ends = sum(env.step(np.zeros(1))[2] for _ in range(400))
    assert abs(ends - 100) < 4 * np.sqrt(400 * 0.25 * 0.75)


def test_wrong_use_is_one_line(agent, plain, rows):
    observations, torques, _ = rows
    for call, message in (
        (lambda: plain.model, "^sac learns no model: use an agent that does"),
        (lambda: plain.log_ratio(observations, torques, observations), "^sac has no classifier"),
        (lambda: plain.bound([]), "^sac has no classifier"),
        (lambda: agent.bound([]), "^there are no episodes"),
        (lambda: agent.model.rollout(observations), "^horizon is None, but must be a whole number"),
        (lambda: agent.model.rollout(observations, np.zeros((2, 1)), horizon=3), "^horizon is 3, but 2 steps"),
        (lambda: agent.model.rollout(observations, lambda _: torques[:2], 3), "6 observations, but 2 actions"),
        (lambda: agent.model.predict(observations, torques[:5]), "6 observations, but 5 actions"),
        (lambda: agent.log_ratio(observations, torques, observations[:1]), "6 observations, but 1 next"),
        (lambda: agent.model.rollout(observations, horizon=1.5), "^horizon is 1.5, but must be a whole number"),
        (lambda: agent.model.rollout(observations, horizon=0), "^horizon is 0, but must be above 0"),
        (lambda: agent.model.sample(observations, torques, seed="x"), "^seed is 'x', but must be a whole number"),
        (lambda: agent.model.as_env(0), "^max_episode_steps is 0"),
        (lambda: agent.model.as_env("3"), "^max_episode_steps is '3', but must be a whole number or None"),
        (lambda: agent.model.as_env(starts="heaven"), "^starts is 'heaven', but must be 'task' or 'replay'"),
    ):
        with pytest.raises(UserError, match=message):
            call()
    with pytest.raises(ValueError, match=r"^Pendulum-v1: an action is nan, which is not a finite number"):
        agent.model.predict(observations, np.full((6, 1), np.nan))
    with pytest.raises(ValueError, match=r"^Pendulum-v1: the actions must have the shape \(rows, 1\), not \(6, 2\)"):
        agent.model.predict(observations, np.zeros((6, 2)))
    assert plain.q_values(observations, torques).shape == (2, 6)


def test_the_bound_needs_positive_rewards(agent, monkeypatch):
    monkeypatch.setattr(agent, "config", replace(agent.config, reward_offset=0.0))
    with pytest.raises(
        UserError, match=r"^the bound takes the logarithm of rewards, and the lowest of Pendulum-v1 was -"
    ):
        agent.bound(agent.evaluate(0, 1))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # what PyTorch and others warn of is not ours
def test_a_policy_trained_by_stable_baselines3_in_the_model_works_in_the_task():
    sb3 = pytest.importorskip(
        "stable_baselines3", reason="pip install 'mnm-rl[sb3]' has stable-baselines3 (and PyTorch)"
    )
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    # Random steps and the model's warm-up alone: the agent's own policy has learned nothing.
    agent = mnm.MBPO("Pendulum-v1", learning_starts=2_000).learn(2_000, evaluate_every=2_000)
    real, model = Monitor(gym.make("Pendulum-v1")), Monitor(agent.model.as_env())
    student = sb3.SAC(
        "MlpPolicy", model, seed=0, learning_rate=1e-3, policy_kwargs={"net_arch": [64, 64]}, device="cpu"
    )
    before, _ = evaluate_policy(student, real, n_eval_episodes=20)
    student.learn(5_000)
    after, _ = evaluate_policy(student, real, n_eval_episodes=20)
    imagined, _ = evaluate_policy(student, model, n_eval_episodes=20)
    print(f"in the task {before:.0f} before, {after:.0f} after; in the model {imagined:.0f}")
    assert before < -800
    assert after > -300
    assert abs(after - imagined) < 150
