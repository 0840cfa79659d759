"""metaworld's drawer-open with the opening's reward."""

import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

import mnm  # noqa: F401 (makes the ids known)

ID = "mnm/DrawerOpen-v0"


def play(env, seed, choose):
    observation, _ = env.reset(seed=seed)
    total, solved, over = 0.0, False, False
    while not over:
        observation, reward, terminated, over, info = env.step(choose(observation))
        assert not terminated
        assert reward == info["opening_reward"]
        total, solved = total + reward, solved or info["success"]
    return total, solved


@pytest.mark.slow
def test_the_scripted_policy_opens_it_ten_times_of_ten():
    from metaworld.policies.sawyer_drawer_open_v3_policy import SawyerDrawerOpenV3Policy

    env, policy = gym.make(ID), SawyerDrawerOpenV3Policy()

    def scripted(observation):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # metaworld's, that its own constants are high
            return np.clip(policy.get_action(observation), -1, 1).astype(np.float32)

    episodes = [play(env, seed, scripted) for seed in range(10)]
    assert all(solved for _, solved in episodes)
    assert np.mean([total for total, _ in episodes]) == pytest.approx(2145, rel=0.01)


@pytest.mark.slow
def test_random_actions_do_not():
    env = gym.make(ID)
    env.action_space.seed(0)
    total, solved = play(env, 0, lambda _: env.action_space.sample())
    assert not solved
    assert total == pytest.approx(333, rel=0.01)


@pytest.mark.slow
def test_the_seed_decides_where_the_drawer_stands_whatever_happened_before():
    used, new = gym.make(ID), gym.make(ID)
    used.reset(seed=1)
    for _ in range(20):
        used.step(np.array([0.3, 1.0, -1.0, 1.0], np.float32))
    (first, _), (second, _) = used.reset(seed=2), new.reset(seed=2)
    np.testing.assert_array_equal(first, second)
    action = np.array([0.1, 0.5, -0.5, 0.0], np.float32)
    for _ in range(20):
        np.testing.assert_array_equal(used.step(action)[0], new.step(action)[0])
    other, _ = new.reset(seed=3)
    assert abs(other[4] - second[4]) > 1e-4
    again, _ = new.reset()
    assert abs(again[4] - other[4]) > 1e-4


@pytest.mark.slow
def test_the_picture_has_a_red_arm_above_a_green_drawer():
    env = gym.make(ID, render_mode="rgb_array", width=120, height=120)
    env.reset(seed=0)
    red, green, blue = np.moveaxis(env.render().astype(int), -1, 0)
    env.close()
    arm, drawer = (red > 2 * green) & (red > 90), (green > red + 40) & (green > blue + 40)
    assert arm.sum() > 200
    assert drawer.sum() > 100
    assert np.argwhere(arm)[:, 0].min() < np.argwhere(drawer)[:, 0].min()


@pytest.mark.slow
def test_without_metaworld_the_error_names_the_extra(run, monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "metaworld"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "metaworld", None)
    code, _, err = run("envs", ID)
    assert code == 2
    assert "pip install 'mnm-rl[metaworld]'" in err
    assert "Traceback" not in err
