"""The finite tasks: one object for the exact code and for sampling."""

import gymnasium as gym
import numpy as np
import pytest

import mnm  # noqa: F401 (makes the ids known)
from mnm.envs.finite import three_states
from mnm.tabular.gym_tables import from_gym
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.solvers import solve

IDS = [
    f"mnm/{name}-v0"
    for name in (
        "StochasticGridworld",
        "ComparingObjectives",
        "OptimisticGridworld",
        "AliasedGridworld",
        "ThreeStates",
    )
]


@pytest.mark.parametrize("task", IDS)
def test_the_table_gives_the_mdp_back(task):
    env = gym.make(task)
    mdp = env.unwrapped.mdp
    read = from_gym(env, mdp.discount)
    # The reader adds one state for episodes that end; here none does.
    states = mdp.num_states
    assert read.num_states == states + 1
    np.testing.assert_allclose(read.dynamics.to_dense()[:states, :, :states], mdp.dynamics.to_dense(), atol=1e-12)
    np.testing.assert_allclose(read.rewards[:states], mdp.expected_rewards, rtol=1e-12)
    np.testing.assert_allclose(read.start[:states], mdp.start)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["mnm/ComparingObjectives-v0", "mnm/OptimisticGridworld-v0", "mnm/ThreeStates-v0"])
def test_monte_carlo_returns_meet_the_exact_value(task):
    env = gym.make(task).unwrapped
    mdp = env.mdp
    solution = solve(mdp)
    horizon = int(np.ceil(np.log(1e-4) / np.log(mdp.discount)))
    weights = mdp.discount ** np.arange(horizon)
    returns = []
    env.reset(seed=0)
    for _ in range(600):
        state, _ = env.reset()
        rewards = []
        for _ in range(horizon):
            state, reward, *_ = env.step(solution.actions[state])
            rewards.append(reward)
        returns.append(weights @ rewards)
    exact = mdp.start @ solution.values
    assert np.mean(returns) == pytest.approx(exact, abs=4 * np.std(returns) / np.sqrt(len(returns)) + 1e-3 * exact)
    assert np.std(returns) > 0 or task == "mnm/ThreeStates-v0"


def test_the_paper_s_gridworld_is_the_exact_code_s():
    env, grid = gym.make("mnm/StochasticGridworld-v0").unwrapped, stochastic_gridworld()
    np.testing.assert_array_equal(env.mdp.dynamics.probs, grid.mdp.dynamics.probs)
    np.testing.assert_array_equal(env.mdp.rewards, grid.mdp.rewards)


def test_text_and_picture_show_walls_goal_and_agent():
    text = gym.make("mnm/StochasticGridworld-v0", render_mode="ansi")
    picture = gym.make("mnm/StochasticGridworld-v0", render_mode="rgb_array")
    for env in (text, picture):
        env.reset(seed=0)
    assert text.render().splitlines()[0] == "A...##...G"
    assert text.render().splitlines()[9] == ".........."
    image = picture.render()
    assert image.shape == (320, 320, 3)
    assert tuple(image[16, 16]) == (40, 90, 200)
    assert tuple(image[16, 9 * 32 + 16]) == (120, 190, 130)
    assert tuple(image[16, 4 * 32 + 16]) == (70, 75, 85)


def test_bad_calls_are_refused():
    env = gym.make("mnm/ThreeStates-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="the action is 2, but must be one of 0 to 1"):
        env.step(2)
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        three_states(render_mode="human")
