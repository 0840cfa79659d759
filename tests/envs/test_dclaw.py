"""The D'Claw tasks against recorded episodes of the original ones; their resets, rewards and pictures."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import mnm  # noqa: F401 (makes the ids known)
from mnm.envs.dclaw import ACTION_RANGES, RESET_POSE, PoseRandom, PoseStart, ValveStart, wrapped

REFERENCE = np.load(Path(__file__).parent / "data/dclaw_reference.npz")
TASKS = ("PoseRandom", "TurnRandom", "ScrewFixed", "ScrewRandom")
VALVE_TASKS = TASKS[1:]


def task(name, **settings):
    return gym.make(f"mnm/DClaw{name}-v0", **settings)


def recorded(name, episode):
    prefix = f"DClaw{name}/{episode}/"
    return {key.removeprefix(prefix): REFERENCE[key] for key in REFERENCE.files if key.startswith(prefix)}


def recorded_start(name, record):
    if name == "PoseRandom":
        return PoseStart(record["claw0"], record["midpoint"], record["amplitude"], record["period"])
    return ValveStart(
        record["claw0"],
        float(record["object0"]),
        float(record["target0"]),
        float(record.get("target_velocity", 0.0)),
    )


@pytest.mark.parametrize("episode", range(4))
@pytest.mark.parametrize("name", TASKS)
def test_follows_the_original(name, episode):
    record = recorded(name, episode)
    env = task(name).unwrapped
    first, _ = env.reset(options={"start": recorded_start(name, record)})
    steps = [env.step(action) for action in record["actions"]]
    # Where fingers and valve collide often, round-off grows.
    tolerance = 1e-6 if name == "ScrewRandom" else 1e-9
    np.testing.assert_allclose(first, record["obs0"], rtol=0, atol=tolerance)
    np.testing.assert_allclose([step[0] for step in steps], record["observations"], rtol=0, atol=tolerance)
    np.testing.assert_allclose([step[1] for step in steps], record["rewards"], rtol=0, atol=tolerance)
    np.testing.assert_array_equal([step[4]["success"] for step in steps], record["success"])


@pytest.mark.parametrize("name", TASKS)
def test_the_reward_is_the_sum_of_its_terms_and_only_the_horizon_ends_an_episode(name):
    env = task(name)
    env.reset(seed=0)
    env.action_space.seed(0)
    for step in range(env.spec.max_episode_steps):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        terms = {key: value for key, value in info.items() if key != "success"}
        assert reward == pytest.approx(sum(terms.values()))
        assert isinstance(info["success"], bool)
        assert not terminated
        assert truncated == (step + 1 == env.spec.max_episode_steps)


def starts(name, count=2000, **settings):
    """Many starts of one environment; no physics is needed for them."""
    env = task(name, **settings).unwrapped
    env.reset(seed=0)
    return [env._noisy(env._random_start()) for _ in range(count)]


def assert_uniform(values, low, high):
    values = np.asarray(values)
    width = high - low
    error = 4 * width / np.sqrt(12 * len(values))
    assert values.min() >= low
    assert values.max() <= high
    assert values.min() < low + 0.01 * width
    assert values.max() > high - 0.01 * width
    assert values.mean() == pytest.approx((low + high) / 2, abs=error)
    assert values.std() == pytest.approx(width / np.sqrt(12), rel=0.05)


def test_turn_starts():
    made = starts("TurnRandom")
    assert_uniform([start.valve for start in made], -np.pi / 3, np.pi / 3)
    targets = np.array([start.target for start in made])
    assert np.abs(targets).max() <= np.pi
    assert_uniform(targets % (2 * np.pi), np.pi - np.pi / 3, np.pi + np.pi / 3)
    assert all(np.array_equal(start.claw, RESET_POSE) and start.target_velocity == 0 for start in made)


def test_screw_starts():
    made = starts("ScrewRandom")
    assert_uniform([start.valve for start in made], -np.pi, np.pi)
    assert_uniform([start.target_velocity for start in made], -0.75, 0.75)
    assert all(start.target == start.valve for start in made)
    (fixed,) = starts("ScrewFixed", count=1)
    assert (fixed.valve, fixed.target, fixed.target_velocity) == (0.0, 0.0, 0.5)


def test_pose_starts():
    made = starts("PoseRandom")
    middles = np.array([start.midpoint for start in made])
    amplitudes = np.array([start.amplitude for start in made])
    periods = np.array([start.period for start in made])
    for joint in range(9):
        assert_uniform(periods[:, joint], 0.5, 2.0)
        high = 0.0 if joint % 3 == 1 else ACTION_RANGES[joint]
        low = -ACTION_RANGES[joint]
        assert middles[:, joint].min() >= low
        assert middles[:, joint].max() <= high
        # The mean of two uniform numbers has their mean and half of their variance.
        assert middles[:, joint].mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
        assert middles[:, joint].std() == pytest.approx((high - low) / np.sqrt(24), rel=0.06)
    assert (amplitudes * periods <= np.pi / 6 + 1e-12).all()
    # Every desired pose lies between the two poses, which lie within the ranges.
    assert (middles + amplitudes <= np.where(np.arange(9) % 3 == 1, 0.0, ACTION_RANGES) + 1e-12).all()
    assert all(np.array_equal(start.claw, start.midpoint) for start in made)


@pytest.mark.parametrize("name", VALVE_TASKS)
def test_reset_noise_moves_every_joint(name):
    made = starts(name, reset_noise=0.01)
    for joint in range(9):
        assert_uniform([start.claw[joint] - RESET_POSE[joint] for start in made], -0.01, 0.01)
    if name == "ScrewFixed":
        assert_uniform([start.valve for start in made], -0.01, 0.01)


def test_pose_s_noise_leaves_the_motion_that_is_to_be_followed():
    for start in starts("PoseRandom", count=10, reset_noise=0.01):
        assert 0 < np.abs(start.claw - start.midpoint).max() <= 0.01


def test_commanding_the_desired_pose_follows_it():
    """About -5.9 a random episode; random actions get -113."""
    env = PoseRandom()
    returns = []
    for seed in range(10):
        env.reset(seed=seed)
        total = 0.0
        for _ in range(80):
            ahead = env._desired() + env.start.amplitude * env.start.period * env.dt * np.cos(
                env.start.period * env._time
            )
            total += env.step((ahead / ACTION_RANGES).astype(np.float32))[1]
        returns.append(total)
    assert np.mean(returns) > -10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("TurnRandom", -683), ("ScrewRandom", -369), ("PoseRandom", -113)])
def test_random_actions_get_what_they_get_in_the_original(name, expected):
    env = task(name)
    env.action_space.seed(0)
    returns = []
    for seed in range(20):
        env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            _, reward, _, over, _ = env.step(env.action_space.sample())
            total += reward
        returns.append(total)
    assert np.mean(returns) == pytest.approx(expected, abs=4 * np.std(returns) / np.sqrt(20))


def test_wrapped_angles():
    assert wrapped(0.5 + 4 * np.pi) == pytest.approx(0.5)
    assert wrapped(np.pi + 0.1) == pytest.approx(-np.pi + 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TurnRandom", "PoseRandom"])
def test_pictures_show_the_target(name):
    """The ghost is green, and moves with the target; the simulation does not notice that it is drawn."""
    drawn, plain = task(name, render_mode="rgb_array", width=160, height=120), task(name)
    for env in (drawn, plain):
        env.reset(seed=0)
    pictures = []
    for _ in range(3):
        pictures.append(drawn.render())
        action = np.full(9, 0.5, np.float32)
        np.testing.assert_array_equal(drawn.step(action)[0], plain.step(action)[0])
    drawn.close()
    assert pictures[0].shape == (120, 160, 3)
    red, green, blue = np.moveaxis(pictures[0].astype(int), -1, 0)
    assert ((green > red + 40) & (green > blue + 20)).sum() > 10
    assert np.abs(pictures[0].astype(int) - pictures[2]).max() > 50


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"render_mode": "human"}, "rgb_array"), ({"reset_noise": -0.1}, "reset_noise is -0.1")],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        PoseRandom(**settings)


def test_bad_calls_are_refused():
    env = PoseRandom()
    with pytest.raises(ValueError, match="unknown reset option 'begin'"):
        env.reset(options={"begin": 1})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        env.step(np.zeros(3))
