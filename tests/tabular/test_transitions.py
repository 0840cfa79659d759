"""Transitions: counted, drawn, written and read, and refused with the place."""

import numpy as np
import pytest

from mnm.tabular import TransitionData, random_mdp, read_transitions, sample_counts, sample_transitions, uniform_policy
from mnm.tabular.files import InputError, read_policy
from mnm.tabular.mdp import MDPError, TabularMDP
from mnm.tabular.transitions import count_transitions

DATA = TransitionData([0, 0, 1, 0], [1, 1, 0, 1], [2.0, 2.0, 0.5, 2.0], [1, 0, 1, 1])


def test_counts_by_hand():
    counts = count_transitions(DATA, num_states=3, num_actions=2)
    assert counts.successors[0, 1].tolist() == [0, 1]
    assert counts.counts[0, 1].tolist() == [1.0, 2.0]
    assert counts.counts[1, 0].tolist() == [1.0, 0.0]
    assert counts.visits.tolist() == [[0, 3], [1, 0], [0, 0]]
    assert counts.reward_sums[0, 1] == 6.0
    assert counts.times(2).visits.tolist() == [[0, 6], [2, 0], [0, 0]]


def test_drawn_transitions_follow_the_mdp():
    mdp = random_mdp(5, 2, seed=0, successors=2)
    data = sample_transitions(mdp, uniform_policy(mdp), 4_000, seed=1)
    counts = count_transitions(data, 5, 2)
    possible = mdp.dynamics.to_dense() > 0
    assert possible[data.state, data.action, data.next_state].all()
    assert np.array_equal(data.reward, mdp.rewards[data.state, data.action])
    dense = np.zeros((5, 2, 5))
    np.add.at(dense, (data.state, data.action, data.next_state), 1.0)
    assert np.abs(dense / counts.visits[:, :, None] - mdp.dynamics.to_dense()).max() < 0.15


def test_rewards_of_the_transition_are_drawn_too():
    mdp = TabularMDP.from_dense([[[0.5, 0.5]], [[0.5, 0.5]]], [[[1.0, 2.0]], [[3.0, 4.0]]], 0.9)
    data = sample_transitions(mdp, uniform_policy(mdp), 50, seed=0)
    assert np.array_equal(data.reward, 1.0 + 2 * data.state + data.next_state)


def test_drawn_counts_have_their_numbers():
    mdp = random_mdp(4, 3, seed=0)
    visits = np.arange(12).reshape(4, 3)
    assert np.array_equal(sample_counts(mdp, visits, seed=0).visits, visits)


@pytest.mark.parametrize("name", ["data.csv", "data.npz"])
def test_written_and_read_again(name, tmp_path):
    DATA.save(tmp_path / name)
    data, facts = read_transitions(tmp_path / name)
    assert facts == {}
    for column in ("state", "action", "reward", "next_state"):
        assert np.array_equal(getattr(data, column), getattr(DATA, column))


def test_an_archive_may_say_what_is_known(tmp_path):
    columns = {"state": [0], "action": [0], "reward": [1.0], "next_state": [1]}
    np.savez(tmp_path / "data.npz", **columns, discount=0.5, num_states=2, reward_range=[0.0, 1.0])
    _, facts = read_transitions(tmp_path / "data.npz")
    assert facts["discount"] == 0.5
    assert facts["num_states"] == 2
    assert facts["reward_range"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 is '', but must name the columns state,action,reward,next_state"),
        ("state,action,reward,next_state\n", "there are no transitions"),
        ("state,action,reward,next_state\n0,0,1,0\n0,x,1,0\n", "line 3 is '0,x,1,0', but must be 4 plain numbers"),
        ("state,action,reward,next_state\n0,0,1\n", "line 2 is '0,0,1', but must be 4 plain numbers"),
        ("state,action,reward,next_state\n0,0,1,0\n0,0,nan,0\n", "transition 1: reward is nan"),
        ("state,action,reward,next_state\n0,0.5,1,0\n", "transition 0: action is 0.5, but must be a whole number"),
        ("state,action,reward,next_state\n-1,0,1,0\n", "transition 0: state is -1, but must be a whole number"),
    ],
)
def test_a_bad_csv_is_refused_with_its_place(text, message, tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"data\.csv: ") as refused:
        read_transitions(path)
    assert message in str(refused.value)


def test_a_state_that_is_none_is_refused():
    with pytest.raises(MDPError, match="transition 0: next_state is 1, but states are 0 to 0"):
        count_transitions(TransitionData([0], [0], [1.0], [1]), 1, 1)


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(MDPError, match="four columns of one length"):
        TransitionData([0, 1], [0], [1.0], [1])


class TestPolicies:
    def test_probabilities_and_actions(self, tmp_path):
        np.savez(tmp_path / "p.npz", policy=[[0.5, 0.5], [0.0, 1.0]])
        (tmp_path / "a.json").write_text('{"actions": [1, 0]}')
        assert read_policy(str(tmp_path / "p.npz")).tolist() == [[0.5, 0.5], [0.0, 1.0]]
        assert read_policy(str(tmp_path / "a.json"), 2).tolist() == [[0.0, 1.0], [1.0, 0.0]]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"actions": [1, 0]}', "how many there are to choose from must be said"),
            ('{"policy": [[0.5, 0.4]]}', "policy: state 0: probabilities sum to 0.9"),
            ('{"policy": [0.5, 0.5]}', "must be \\[states, actions\\]"),
            ('{"x": 1}', "a policy file has one array"),
            ("[]", "it is no JSON object"),
        ],
    )
    def test_a_bad_one_is_refused(self, text, message, tmp_path):
        (tmp_path / "p.json").write_text(text)
        with pytest.raises(InputError, match=message):
            read_policy(str(tmp_path / "p.json"))
