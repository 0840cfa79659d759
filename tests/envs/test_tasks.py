"""All tasks: Gymnasium's checker, seeds, independence, and what `mnm envs` says of them."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from matplotlib.image import imread

import mnm  # noqa: F401 (makes the ids known)
from mnm.envs import TASKS
from mnm.envs.terminations import DECLARED

OURS = [task.id for task in TASKS if task.entry_point is not None]


def made(task, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a newer version of Gymnasium's task exists
        return gym.make(task, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("task", OURS)
def test_gymnasium_s_checker_passes(task):
    env = made(task).unwrapped
    with warnings.catch_warnings():
        # Advice on spaces that Gymnasium's own tasks do not follow either.
        warnings.filterwarnings("ignore", message=".*imum value is -?infinity|.*symmetric and normalized")
        warnings.filterwarnings("ignore", message=".*out of date", category=DeprecationWarning)
        # Gymnasium's own tasks can also open a window, which not every machine has.
        check_env(env, skip_render_check="human" in env.metadata["render_modes"])


def rollout(env, seed, steps=15):
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    seen = [np.asarray(observation)]
    rewards = []
    for _ in range(steps):
        observation, reward, terminated, *_ = env.step(env.action_space.sample())
        seen.append(np.asarray(observation))
        rewards.append(reward)
        if terminated:
            break
    return np.stack(seen), np.array(rewards)


@pytest.mark.parametrize("task", OURS)
def test_one_seed_one_episode_bit_by_bit(task):
    env = made(task)
    first, other, again = rollout(env, 1), rollout(env, 2), rollout(env, 1)
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first[0], other[0])


@pytest.mark.slow
@pytest.mark.parametrize("task", OURS)
def test_two_environments_share_nothing(task):
    alone = rollout(made(task), 1)
    one, two = made(task), made(task)
    for env, seed in ((one, 1), (two, 2)):
        env.action_space.seed(seed)
        env.reset(seed=seed)
    seen = []
    for _ in range(len(alone[1])):
        seen.append(np.asarray(one.step(one.action_space.sample())[0]))
        two.step(two.action_space.sample())
        two.reset()
    np.testing.assert_array_equal(np.stack(seen), alone[0][1:])


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_table_tells_the_truth(task):
    env = made(task.id)
    for space, text in ((env.observation_space, task.observation), (env.action_space, task.action)):
        size = space.n if isinstance(space, gym.spaces.Discrete) else np.prod(space.shape)
        assert int(text.split()[0]) == size
    assert env.spec.max_episode_steps == task.horizon


@pytest.mark.slow
@pytest.mark.parametrize("task", DECLARED)
def test_declared_terminations_are_the_tasks_own(task):
    """On episodes of random actions, until each has ended a few times."""
    env = made(f"mnm/{task}")
    env.action_space.seed(0)
    befores, actions, afters, ends = [], [], [], []
    for episode in range(6):
        observation, _ = env.reset(seed=episode)
        over = False
        while not over:
            action = env.action_space.sample()
            after, _, terminated, truncated, _ = env.step(action)
            for rows, row in ((befores, observation), (actions, action), (afters, after), (ends, terminated)):
                rows.append(row)
            observation, over = after, terminated or truncated
    declared = env.unwrapped.termination_function(*map(np.array, (befores, actions, afters)))
    assert sum(ends) >= 3
    np.testing.assert_array_equal(declared, ends)


def test_the_command_lists_all(run):
    code, out, _ = run("envs")
    assert code == 0
    for task in TASKS:
        assert task.id in out


@pytest.mark.slow
def test_the_command_draws_one(run, tmp_path):
    picture = tmp_path / "folder" / "claw.png"
    code, out, err = run("envs", "mnm/DClawTurnRandom-v0", "--picture", picture)
    assert code == 0, err
    assert "float32 (9,), -1 to 1" in out
    assert imread(picture).shape[:2] == (480, 480)
    assert imread(picture).std() > 0.05


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("mnm/DClawTurnRandm-v0",), "mnm/DClawTurnRandom-v0"),
        (("--picture", "x.png"), "name it"),
        (("mnm/ThreeStates-v0", "--picture", "/proc/x/y.png"), "/proc/x"),
    ],
)
def test_the_command_s_errors_are_one_line(run, arguments, said):
    code, _, err = run("envs", *arguments)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert err.count("\n") == 1
