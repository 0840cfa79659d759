"""MDPs from Gymnasium's transition tables, against the tables and against episodes in the environments."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from mnm.tabular import MDPError, evaluate_policy, from_gym, solve, uniform_policy
from mnm.tabular.files import FiniteTask
from mnm.tabular.gym_tables import map_of
from mnm.tabular.solution import policy_lines

ENVIRONMENTS = ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"]


@pytest.fixture(params=ENVIRONMENTS)
def environment(request):
    made = gymnasium.make(request.param)
    yield made
    made.close()


def toy_environment(table, start):
    return SimpleNamespace(P=table, initial_state_distrib=np.array(start))


def test_rows_sum_to_one_and_one_state_is_added(environment):
    mdp = from_gym(environment)
    np.testing.assert_allclose(mdp.dynamics.probs.sum(axis=-1), 1.0, rtol=1e-12)
    assert mdp.num_states == environment.observation_space.n + 1
    assert mdp.num_actions == environment.action_space.n
    assert mdp.discount == 0.99


def test_the_last_state_is_absorbing_and_worth_nothing(environment):
    mdp = from_gym(environment, discount=0.9)
    dense = mdp.dynamics.to_dense()
    assert (dense[-1, :, -1] == 1.0).all()
    assert (mdp.expected_rewards[-1] == 0.0).all()
    assert mdp.start[-1] == 0.0
    assert evaluate_policy(mdp, uniform_policy(mdp))[-1] == 0.0


def test_every_entry_equals_the_published_table(environment):
    table = environment.unwrapped.P
    mdp = from_gym(environment)
    dense, rewards = mdp.dense_arrays()
    expected, expected_rewards = np.zeros_like(dense), np.zeros_like(rewards)
    absorbing = len(table)
    expected[absorbing, :, absorbing] = 1.0
    for state in range(absorbing):
        for action in table[state]:
            for probability, next_state, reward, ended in table[state][action]:
                expected[state, action, absorbing if ended else next_state] += probability
                expected_rewards[state, action] += probability * reward
    np.testing.assert_allclose(dense, expected, atol=1e-14)
    np.testing.assert_allclose(rewards, expected_rewards, atol=1e-14)
    np.testing.assert_allclose(mdp.start[:-1], environment.unwrapped.initial_state_distrib, atol=0)


def discounted_returns(environment, policy, discount, episodes, horizon, seed):
    """The discounted returns of episodes in the environment itself, without its time limit."""
    unwrapped = environment.unwrapped
    rng = np.random.default_rng(seed)
    unwrapped.reset(seed=seed)
    cumulative = policy.cumsum(axis=1)
    returns = np.zeros(episodes)
    for episode in range(episodes):
        state, _ = unwrapped.reset()
        weight = 1.0
        for draw in rng.random(horizon):
            action = min(int(np.searchsorted(cumulative[state], draw)), policy.shape[1] - 1)
            state, reward, terminated, _, _ = unwrapped.step(action)
            returns[episode] += weight * reward
            weight *= discount
            if terminated:
                break
    return returns


@pytest.mark.slow
@pytest.mark.parametrize("exploration", [0.05, 0.3])
def test_episodes_agree_with_the_exact_value(environment, exploration):
    mdp = from_gym(environment, discount=0.9)
    policy = (1 - exploration) * solve(mdp).policy(mdp.num_actions) + exploration * uniform_policy(mdp)
    horizon = 150
    truncation = mdp.discount**horizon * np.abs(mdp.expected_rewards).max() / (1 - mdp.discount)
    returns = discounted_returns(environment, policy, mdp.discount, 2000, horizon, seed=11)
    standard_error = returns.std() / len(returns) ** 0.5
    exact = float(mdp.start @ evaluate_policy(mdp, policy))
    assert 0 < standard_error < 0.05 * np.abs(returns).max()
    assert abs(returns.mean() - exact) < 4 * standard_error + truncation


def test_a_table_by_hand():
    table = {
        0: {
            0: [(0.5, 1, 2.0, False), (0.25, 1, 6.0, False), (0.25, 0, 4.0, True)],
            1: [(1.0, 0, 1.0, False)],
        },
        1: {0: [(1.0, 1, 8.0, True)], 1: [(0.5, 0, 0.0, False), (0.5, 1, -2.0, True)]},
    }
    mdp = from_gym(toy_environment(table, [0.75, 0.25]), discount=0.5)
    assert np.array_equal(
        mdp.dynamics.to_dense(),
        [
            [[0.0, 0.75, 0.25], [1.0, 0.0, 0.0]],
            [[0.0, 0.0, 1.0], [0.5, 0.0, 0.5]],
            [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
        ],
    )
    assert np.array_equal(mdp.expected_rewards, [[3.5, 1.0], [8.0, -1.0], [0.0, 0.0]])
    assert mdp.start.tolist() == [0.75, 0.25, 0.0]
    values = evaluate_policy(mdp, np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(values, [3.5 + 0.5 * 0.75 * 8.0, 8.0, 0.0], rtol=1e-14)


@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1"])
def test_an_environment_without_a_table_is_refused(name):
    made = gymnasium.make(name)
    with pytest.raises(MDPError, match=f"{name}.*has no transition table P"):
        from_gym(made)
    made.close()


def test_an_environment_without_a_start_distribution_is_refused():
    with pytest.raises(MDPError, match="has no initial_state_distrib"):
        from_gym(SimpleNamespace(P={0: {0: [(1.0, 0, 1.0, False)]}}))


def test_a_table_whose_rows_do_not_sum_to_one_is_refused():
    table = {0: {0: [(0.5, 0, 1.0, False)]}}
    with pytest.raises(MDPError, match=r"state 0, action 0: probabilities sum to 0\.5"):
        from_gym(toy_environment(table, [1.0]))


def test_a_wrong_discount_is_refused(environment):
    with pytest.raises(MDPError, match="discount must lie strictly between 0 and 1"):
        from_gym(environment, discount=1.0)


def test_only_a_map_with_one_cell_for_each_state_is_one():
    frozen, taxi, cliff = (map_of(gymnasium.make(name)) for name in ("FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"))
    assert ["".join(row) for row in frozen] == ["SFFF", "FHFH", "FFFH", "HFFG"]
    assert taxi is None
    assert cliff is None


@pytest.mark.parametrize("slippery", [False, True])
def test_an_action_s_arrow_is_where_it_leads(slippery):
    environment = gymnasium.make("FrozenLake-v1", is_slippery=slippery)
    task = FiniteTask("lake", from_gym(environment), letters=map_of(environment))
    for action, arrow in enumerate("←↓→↑"):  # the environment's own order
        lines = policy_lines(task, np.full(17, action))
        assert lines == [line.replace("*", arrow) for line in ("* * * *", "* H * H", "* * * H", "H * * G")]
