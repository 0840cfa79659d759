"""The jitted program from counts against the obvious algorithm with a growing replay."""

from dataclasses import replace

import numpy as np
import pytest

from mnm.tabular import MDPError, evaluate_policy, optimal_return
from mnm.tabular.mdp import deterministic_policy
from mnm.tabular.mnm import joint_iteration
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.q_learning import METHODS, Method, Run, Schedule, draw_chance, greedy_returns, learn

SHORT = Schedule(iterations=25, episode_steps=40, evaluate_every=5)


def obvious_learning(mdp, method: Method, seed: int, schedule: Schedule, base=None):
    """Every stored transition is visited one by one in every pass; q is built row by row."""
    base = mdp.dynamics if base is None else base
    rewards = np.log(mdp.expected_rewards) if method.log_reward else mdp.expected_rewards
    rewards = rewards * (1 - mdp.discount if method.discounted_scale else 1.0)
    states, actions, _ = base.probs.shape
    chance = draw_chance(seed, schedule.iterations, schedule.episode_steps, actions, schedule.epsilon)
    q_values, replay, returns = np.zeros((states, actions)), [], []
    for iteration in range(schedule.iterations):
        values = q_values.max(axis=1)
        state = int((mdp.start.cumsum()[:-1] <= chance.starts[iteration]).sum())
        for time in range(schedule.episode_steps):
            greedy = int(q_values[state].argmax())
            action = int(chance.actions[iteration, time]) if chance.explores[iteration, time] else greedy
            real = base.probs[state, action]
            model = real * np.exp(method.tilt * values[base.successors[state, action]])
            model /= model.sum()
            kl = sum(q * np.log(q / p) for q, p in zip(model, real, strict=True) if q > 0)
            slot = int((model.cumsum()[:-1] <= chance.outcomes[iteration, time]).sum())
            next_state = int(base.successors[state, action, slot])
            replay.append((state, action, rewards[state, action] - method.kl_weight * kl, next_state))
            state = next_state
        change = np.zeros_like(q_values)
        for state, action, reward, next_state in replay:
            target = reward + mdp.discount * values[next_state]
            change[state, action] += schedule.learning_rate * (target - q_values[state, action])
        q_values = q_values + change / schedule.episode_steps
        if iteration % schedule.evaluate_every == 0:
            policy = deterministic_policy(q_values.argmax(axis=1), actions)
            returns.append(mdp.start @ evaluate_policy(mdp, policy))
    return q_values, np.array(returns)


@pytest.mark.slow
def test_every_method_gives_the_numbers_of_the_obvious_algorithm():
    mdp = stochastic_gridworld().mdp
    curves = learn([Run(mdp, method, seed) for method in METHODS.values() for seed in (0, 1)], SHORT)
    runs = [(method, seed) for method in METHODS.values() for seed in (0, 1)]
    for number, (method, seed) in enumerate(runs):
        q_values, returns = obvious_learning(mdp, method, seed, SHORT)
        np.testing.assert_allclose(curves.q_values[number], q_values, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(curves.returns[number], returns, rtol=1e-9)


@pytest.mark.slow
def test_other_dynamics_are_sampled_but_reality_is_evaluated():
    mdp = stochastic_gridworld((4, 1)).mdp
    model = joint_iteration(stochastic_gridworld().mdp, 1.0)[-1].model
    curves = learn([Run(mdp, METHODS["Q-learning"], 0, model)], SHORT)
    q_values, returns = obvious_learning(mdp, METHODS["Q-learning"], 0, SHORT, base=model)
    np.testing.assert_allclose(curves.q_values[0], q_values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(curves.returns[0], returns, rtol=1e-9)


@pytest.mark.slow
def test_a_run_does_not_depend_on_its_batch():
    mdp = stochastic_gridworld().mdp
    alone = learn([Run(mdp, METHODS["MnM"], 3)], SHORT)
    together = learn([Run(mdp, METHODS["VMBPO"], 1), Run(mdp, METHODS["MnM"], 3)], SHORT)
    np.testing.assert_allclose(together.q_values[1], alone.q_values[0], rtol=1e-12)


def test_the_same_seed_twice_is_bit_equal_and_another_seed_is_not():
    mdp = stochastic_gridworld().mdp
    first, again, other = (learn([Run(mdp, METHODS["MnM"], seed)], SHORT).q_values for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_optimal_value_of_the_gridworld():
    assert optimal_return(stochastic_gridworld().mdp) == pytest.approx(1.3875, abs=5e-5)


def test_greedy_returns_evaluate_many_policies():
    mdp = stochastic_gridworld().mdp
    actions = np.random.default_rng(0).integers(4, size=(3, mdp.num_states))
    expected = [mdp.start @ evaluate_policy(mdp, deterministic_policy(row, 4)) for row in actions]
    assert greedy_returns(mdp, actions) == pytest.approx(expected)


def test_evaluations_are_at_the_schedule_s_iterations():
    assert Schedule().evaluated[[0, 1, -1]].tolist() == [0, 20, 1500]


def test_chance_has_the_right_shares():
    chance = draw_chance(0, 200, 100, 4, epsilon=0.3)
    assert chance.explores.mean() == pytest.approx(0.3, abs=0.01)
    assert np.bincount(chance.actions.ravel()) / chance.actions.size == pytest.approx([0.25] * 4, abs=0.01)
    assert 0 <= chance.outcomes.min() <= chance.outcomes.max() < 1


def test_runs_that_cannot_share_a_program_are_refused():
    mdp = stochastic_gridworld().mdp
    with pytest.raises(MDPError, match="must share successors, start and discount"):
        learn([Run(mdp, METHODS["MnM"], 0), Run(replace(mdp, discount=0.8), METHODS["MnM"], 0)], SHORT)
