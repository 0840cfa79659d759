"""Dynamics and TabularMDP: what they hold, what they refuse, and what the refusals say."""

import re
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnm.tabular import evaluate_policy, random_mdp, random_model, random_policy
from mnm.tabular.bounds import paper_bound
from mnm.tabular.mdp import Dynamics, MDPError, TabularMDP, deterministic_policy, uniform_policy

# State 0: action 0 moves on to 1, action 1 goes to 0 or 2. State 1 is a coin toss. State 2 stays.
DENSE = np.array(
    [
        [[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]],
        [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]],
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ]
)


def small_mdp(**changes):
    parts = {"probs": DENSE, "rewards": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "discount": 0.9, "start": 0}
    return TabularMDP.from_dense(**(parts | changes))


def changed(array, index, value):
    array = np.array(array, dtype=float)
    array[index] = value
    return array


@st.composite
def dense_dynamics(draw):
    states, actions = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    size = states * actions * states
    weights = np.array(draw(st.lists(st.integers(0, 4), min_size=size, max_size=size)), dtype=float)
    weights = weights.reshape(states, actions, states)
    weights[..., draw(st.integers(0, states - 1))] += 1.0
    return weights / weights.sum(axis=-1, keepdims=True)


@st.composite
def successor_lists(draw):
    states, actions, slots = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    size = states * actions * slots
    numbers = draw(st.lists(st.integers(0, states - 1), min_size=size, max_size=size))
    weights = np.array(draw(st.lists(st.integers(0, 3), min_size=size, max_size=size)), dtype=float)
    shape = (states, actions, slots)
    weights = weights.reshape(shape)
    weights[..., draw(st.integers(0, slots - 1))] += 1.0
    return np.array(numbers).reshape(shape), weights / weights.sum(axis=-1, keepdims=True)


# --- shapes and round trips ---------------------------------------------------------------------------------


def test_dynamics_keep_only_as_many_slots_as_the_fullest_row_needs():
    dynamics = Dynamics.from_dense(DENSE)
    assert (dynamics.num_states, dynamics.num_actions) == (3, 2)
    assert dynamics.successors.shape == dynamics.probs.shape == (3, 2, 2)
    assert dynamics.successors.dtype == np.int32
    assert dynamics.probs.dtype == np.float64
    assert dynamics.matrix.shape == (6, 3)


def test_matrix_row_s_times_actions_plus_a_is_the_distribution_after_s_and_a():
    matrix = Dynamics.from_dense(DENSE).matrix.toarray()
    assert np.array_equal(matrix[0 * 2 + 1], [0.25, 0.0, 0.75])
    assert np.array_equal(matrix[1 * 2 + 0], [0.5, 0.5, 0.0])


def test_expect_averages_over_the_next_state():
    values = np.array([8.0, 2.0, 4.0])
    expected = [[2.0, 0.25 * 8 + 0.75 * 4], [5.0, 3.0], [4.0, 4.0]]
    assert np.array_equal(Dynamics.from_dense(DENSE).expect(values), expected)


@given(dense_dynamics())
def test_dense_in_dense_out(dense):
    dynamics = Dynamics.from_dense(dense)
    assert np.array_equal(dynamics.to_dense(), dense)
    assert dynamics.probs.shape[2] == (dense > 0).sum(axis=-1).max()


@given(dense_dynamics(), st.integers(0, 2**32 - 1))
def test_mdp_dense_in_dense_out(dense, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=dense.shape[:2])
    start = rng.dirichlet(np.ones(len(dense)))
    mdp = TabularMDP.from_dense(dense, rewards, 0.7, start)
    probs_out, rewards_out = mdp.dense_arrays()
    assert np.array_equal(probs_out, dense)
    assert np.array_equal(rewards_out, rewards)
    assert np.array_equal(mdp.start, start)
    assert mdp.discount == 0.7
    assert (mdp.num_states, mdp.num_actions) == dense.shape[:2]


@given(dense_dynamics(), st.integers(0, 2**32 - 1))
def test_expect_equals_the_dense_sum(dense, seed):
    values = np.random.default_rng(seed).normal(size=len(dense))
    expected = [[sum(p * v for p, v in zip(row, values, strict=True)) for row in rows] for rows in dense]
    np.testing.assert_allclose(Dynamics.from_dense(dense).expect(values), expected, atol=1e-12)


@given(successor_lists())
def test_from_lists_adds_up_a_successor_that_is_listed_more_than_once(lists):
    successors, probs = lists
    dense = defaultdict(float)
    for state, action, slot in np.ndindex(successors.shape):
        dense[state, action, int(successors[state, action, slot])] += probs[state, action, slot]
    states, actions, _ = successors.shape
    expected = [[[dense[s, a, t] for t in range(states)] for a in range(actions)] for s in range(states)]
    dynamics = Dynamics.from_lists(successors, probs)
    np.testing.assert_allclose(dynamics.to_dense(), expected, atol=1e-12)
    for state, action in np.ndindex(states, actions):
        used = dynamics.successors[state, action][dynamics.probs[state, action] > 0]
        assert len(set(used.tolist())) == len(used)


def test_from_lists_by_hand():
    dynamics = Dynamics.from_lists([[[1, 0, 1]], [[0, 0, 0]]], [[[0.25, 0.5, 0.25]], [[0.5, 0.25, 0.25]]])
    assert np.array_equal(dynamics.to_dense(), [[[0.5, 0.5]], [[1.0, 0.0]]])


def test_padding_may_name_any_state():
    dynamics = Dynamics(np.array([[[0, 0]], [[1, 0]]]), np.array([[[1.0, 0.0]], [[0.5, 0.5]]]))
    assert np.array_equal(dynamics.to_dense(), [[[1.0, 0.0]], [[0.5, 0.5]]])


def test_with_probs_keeps_the_successors():
    dynamics = Dynamics.from_dense(DENSE)
    other = dynamics.with_probs(np.broadcast_to([1.0, 0.0], (3, 2, 2)))
    assert np.array_equal(other.successors, dynamics.successors)
    assert np.array_equal(other.probs[1, 1], [1.0, 0.0])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16, np.float32, np.longdouble, ">f8", ">i4"])
def test_dense_probabilities_of_any_real_type_are_read(dtype):
    dense = np.array([[[0, 1]], [[1, 0]]]).astype(dtype)
    assert np.array_equal(Dynamics.from_dense(dense).to_dense(), [[[0.0, 1.0]], [[1.0, 0.0]]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_row_sums_are_judged_in_double_precision(dtype):
    probs = np.full((10, 1, 10), 0.1, dtype)
    assert abs(probs[0, 0].astype(np.float64).sum() - 1.0) > 1e-8
    with pytest.raises(MDPError, match="state 0, action 0: probabilities sum to"):
        Dynamics(np.broadcast_to(np.arange(10), (10, 1, 10)), probs)


def test_rewards_of_a_state_count_for_all_its_actions():
    mdp = small_mdp(rewards=[7.0, 8.0, 9.0])
    assert np.array_equal(mdp.expected_rewards, [[7.0, 7.0], [8.0, 8.0], [9.0, 9.0]])


def test_expected_rewards_average_what_depends_on_the_next_state():
    rewards = np.zeros((3, 2, 3))
    rewards[:] = [10.0, 20.0, 40.0]
    mdp = small_mdp(rewards=rewards)
    expected = [[20.0, 0.25 * 10 + 0.75 * 40], [15.0, 30.0], [40.0, 40.0]]
    assert np.array_equal(mdp.expected_rewards, expected)
    assert np.array_equal(mdp.dense_arrays()[1], expected)


def test_rewards_beside_the_successors_belong_to_their_slots():
    dynamics = Dynamics(np.array([[[1, 0]], [[0, 1]]]), np.array([[[0.75, 0.25]], [[0.5, 0.5]]]))
    mdp = TabularMDP(dynamics, np.array([[[4.0, 8.0]], [[1.0, 3.0]]]), np.array([1.0, 0.0]), 0.5)
    assert np.array_equal(mdp.expected_rewards, [[0.75 * 4 + 0.25 * 8], [2.0]])


def test_start_as_a_number_is_a_point_distribution():
    assert np.array_equal(small_mdp(start=2).start, [0.0, 0.0, 1.0])
    assert np.array_equal(small_mdp(start=np.int64(1)).start, [0.0, 1.0, 0.0])


# --- immutability -------------------------------------------------------------------------------------------


def test_arrays_cannot_be_written():
    mdp = small_mdp()
    arrays = [mdp.dynamics.successors, mdp.dynamics.probs, mdp.rewards, mdp.start, mdp.expected_rewards]
    for array in [*arrays, mdp.log_rewards]:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_attributes_cannot_be_replaced():
    mdp = small_mdp()
    with pytest.raises(AttributeError):
        mdp.discount = 0.5
    with pytest.raises(AttributeError):
        mdp.dynamics.probs = np.zeros(1)


def test_later_writes_to_the_callers_arrays_have_no_effect():
    successors = np.array([[[0, 1]], [[1, 0]]], np.int32)
    probs = np.array([[[0.5, 0.5]], [[1.0, 0.0]]])
    rewards, start = np.array([[1.0], [2.0]]), np.array([1.0, 0.0])
    mdp = TabularMDP(Dynamics(successors, probs), rewards, start, 0.9)
    for array in (successors, probs, rewards, start):
        array[...] = 9
    assert np.array_equal(mdp.dynamics.to_dense(), [[[0.5, 0.5]], [[0.0, 1.0]]])
    assert np.array_equal(mdp.rewards, [[1.0], [2.0]])
    assert np.array_equal(mdp.start, [1.0, 0.0])


def test_writes_through_a_read_only_view_of_the_callers_array_have_no_effect():
    owner = np.array([[[0.5, 0.5]], [[1.0, 0.0]]])
    view = owner[:]
    view.setflags(write=False)
    dynamics = Dynamics(np.array([[[0, 1]], [[1, 0]]]), view)
    owner[...] = 9
    assert np.array_equal(dynamics.probs, [[[0.5, 0.5]], [[1.0, 0.0]]])


def test_writes_to_dense_output_do_not_reach_the_mdp():
    mdp = small_mdp()
    probs, rewards = mdp.dense_arrays()
    probs[...] = rewards[...] = -1
    assert np.array_equal(mdp.dense_arrays()[0], DENSE)
    assert np.array_equal(mdp.rewards, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [Dynamics.from_dense, lambda probs: small_mdp(probs=probs)])
@pytest.mark.parametrize("value", [-0.25, np.nan, np.inf, -np.inf])
def test_what_is_no_probability_is_named_with_its_state_and_action(build, value):
    with pytest.raises(MDPError, match=f"dynamics: state 1, action 0: {value} is not a probability"):
        build(changed(DENSE, (1, 0, 1), value))


def test_rows_that_do_not_sum_to_one_are_named_with_sum_and_remedy():
    with pytest.raises(MDPError, match=r"state 0, action 1: probabilities sum to 0\.9, not 1; normalise them"):
        Dynamics.from_dense(changed(DENSE, (0, 1, 2), 0.65))


@pytest.mark.parametrize("excess", [1e-7, -1e-7])
def test_small_errors_of_the_row_sum_are_refused(excess):
    with pytest.raises(MDPError, match="state 2, action 0: probabilities sum to"):
        Dynamics.from_dense(changed(DENSE, (2, 0, 2), 1.0 + excess))


def test_rounding_errors_of_the_row_sum_are_accepted():
    dense = np.array([[[0.1] * 10]] * 10)
    assert Dynamics.from_dense(dense).probs.shape == (10, 1, 10)


def test_row_sums_that_overflow_are_refused_like_any_other():
    with pytest.raises(MDPError, match="state 0, action 0"):
        Dynamics.from_dense([[[1e308, 1e308]], [[0.0, 1.0]]])


@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 4), (0, 2, 0), (3, 0, 3), (3,), ()])
def test_dense_probabilities_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(MDPError, match=re.escape(f"must have shape [S, A, S]; got {shape}")):
        Dynamics.from_dense(np.ones(shape))


@pytest.mark.parametrize("build", [Dynamics, Dynamics.from_lists])
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 1, 2), (2, 1, 3)),
        ((2, 2), (2, 2)),
        ((2, 1, 0), (2, 1, 0)),
        ((0, 1, 2), (0, 1, 2)),
        ((2, 0, 2), (2, 0, 2)),
    ],
)
def test_lists_of_the_wrong_shapes_are_refused(build, shapes):
    successors, probs = np.zeros(shapes[0], int), np.zeros(shapes[1])
    with pytest.raises(MDPError, match=re.escape(f"shape [S, A, K]; got {shapes[0]} and {shapes[1]}")):
        build(successors, probs)


@pytest.mark.parametrize("build", [Dynamics, Dynamics.from_lists])
@pytest.mark.parametrize("successor", [2, -1, 10**12])
def test_a_successor_out_of_range_is_named_with_its_place(build, successor):
    with pytest.raises(
        MDPError,
        match=f"state 1, action 0, successor slot 0: successor {successor} is not a state; states are 0 to 1",
    ):
        build(np.array([[[0]], [[successor]]]), np.ones((2, 1, 1)))


@pytest.mark.parametrize("build", [Dynamics, Dynamics.from_lists])
@pytest.mark.parametrize("successor", [0.5, np.nan, np.inf])
def test_a_successor_that_is_no_whole_number_is_refused(build, successor):
    with pytest.raises(MDPError, match="successor"):
        build(np.array([[[0.0]], [[successor]]]), np.ones((2, 1, 1)))


@pytest.mark.parametrize("share", [-0.5, np.nan, np.inf])
def test_from_lists_refuses_bad_shares_even_if_they_would_add_up(share):
    with pytest.raises(MDPError, match=f"state 0, action 0: {share} is not a probability"):
        Dynamics.from_lists([[[0, 0]], [[1, 1]]], [[[share, 1.0 - share]], [[1.0, 0.0]]])


def test_a_repeated_successor_is_named_and_from_lists_suggested():
    with pytest.raises(MDPError, match=r"state 1, action 0: successor 1 is listed twice.*Dynamics\.from_lists"):
        Dynamics(np.array([[[0, 1]], [[1, 1]]]), np.full((2, 1, 2), 0.5))


def test_ragged_lists_are_refused():
    with pytest.raises(MDPError, match="probs: rows of unequal length"):
        Dynamics.from_dense([[[1.0, 0.0]], [[1.0]]])


def test_words_are_refused():
    with pytest.raises(MDPError, match="probs: expected real numbers"):
        Dynamics.from_dense([[["one"]]])
    with pytest.raises(MDPError, match="rewards: expected real numbers"):
        small_mdp(rewards=np.full((3, 2), 1j))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 3)])
def test_a_reward_that_is_not_finite_is_named(shape, value):
    rewards = np.ones(shape)
    rewards[(2, 1, 0)[: len(shape)]] = value
    with pytest.raises(MDPError, match=f"state 2, action 1: reward {value} is not a finite number"):
        small_mdp(rewards=rewards)


def test_a_state_reward_that_is_not_finite_is_named():
    with pytest.raises(MDPError, match="state 1, action 0: reward nan is not a finite number"):
        small_mdp(rewards=[1.0, np.nan, 1.0])


@pytest.mark.parametrize("shape", [(2,), (2, 3), (3, 3), (3, 2, 4), (3, 2, 3, 1), ()])
def test_rewards_of_the_wrong_shape_are_refused(shape):
    with pytest.raises(
        MDPError, match=re.escape("rewards must have shape (3, 2) or (3, 2, 2)") + ".*" + re.escape(f"{shape}")
    ):
        small_mdp(rewards=np.ones(shape))


@pytest.mark.parametrize("discount", [0, 1, float("nan"), 2, -0.5, float("inf")])
def test_a_discount_outside_zero_to_one_is_refused(discount):
    with pytest.raises(MDPError, match="discount must lie strictly between 0 and 1; got"):
        small_mdp(discount=discount)


@pytest.mark.parametrize("start", [3, -1, 10**30])
def test_a_start_state_out_of_range_is_refused(start):
    with pytest.raises(MDPError, match=f"start state {start} is not a state; states are 0 to 2"):
        small_mdp(start=start)


@pytest.mark.parametrize("start", [0.5, float("nan"), float("inf")])
def test_a_start_state_that_is_no_whole_number_is_refused(start):
    with pytest.raises(MDPError, match="start"):
        small_mdp(start=start)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([1.0, 0.0], r"start must have one probability for each of the 3 states; got \(2,\)"),
        ([[1.0, 0.0, 0.0]], r"start must have one probability for each of the 3 states; got \(1, 3\)"),
        ([0.5, 0.2, 0.2], r"start distribution: probabilities sum to 0\.9, not 1; normalise them"),
        ([1.5, -0.5, 0.0], r"start distribution: state 1: -0\.5 is not a probability"),
        ([np.nan, 0.5, 0.5], r"start distribution: state 0: nan is not a probability"),
        (["a", "b", "c"], "start: expected real numbers"),
    ],
)
def test_a_wrong_start_distribution_is_refused(start, message):
    with pytest.raises(MDPError, match=message):
        small_mdp(start=start)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.ones((2, 3)) / 3, r"shape \(3, 2\); got \(2, 3\).*deterministic_policy"),
        (np.array([0, 1, 0]), r"shape \(3, 2\); got \(3,\).*deterministic_policy"),
        (changed(np.full((3, 2), 0.5), (1, 1), 0.4), r"policy: state 1: probabilities sum to 0\.9, not 1"),
        (changed(np.full((3, 2), 0.5), (2, 0), -0.5), r"policy: state 2, action 0: -0\.5 is not a probability"),
        (changed(np.full((3, 2), 0.5), (0, 1), np.nan), "policy: state 0, action 1: nan is not a probability"),
    ],
)
def test_a_wrong_policy_is_refused(policy, message):
    with pytest.raises(MDPError, match=message):
        evaluate_policy(small_mdp(), policy)


def test_a_model_of_another_mdp_is_refused():
    model = Dynamics.from_dense(np.ones((1, 2, 1)))
    with pytest.raises(MDPError, match="the model has 1 states and 2 actions, the MDP 3 and 2"):
        paper_bound(small_mdp(), uniform_policy(small_mdp()), model)


# --- logarithms and offsets ---------------------------------------------------------------------------------


def test_log_rewards():
    np.testing.assert_allclose(small_mdp().log_rewards, np.log([[1, 2], [3, 4], [5, 6]]), rtol=1e-15)


@pytest.mark.parametrize(
    "rewards",
    [
        [1.0, 0.0, 2.0],
        [5.0, -1.0, -7.0],
        [0.0, 0.0, 0.0],
        [-3.0, -3.0, -3.0],
        [0.001, -0.001, 0.0],
        [1.0, -1000000.5, -1000000.4],
        [-1000000.5, -1000000.4, -1000000.45],
        [1e-9, -1e-9, 1e-9],
        [-1e20, -1e20, -1e20],
        [-5e-324, 0.0, 0.0],
    ],
)
def test_rewards_without_logarithm_are_named_and_the_suggested_offset_works(rewards):
    mdp = small_mdp(rewards=rewards)
    first = next(state for state, reward in enumerate(rewards) if reward <= 0)
    with pytest.raises(MDPError, match=f"state {first}, action 0: reward") as caught:
        _ = mdp.log_rewards
    offset = float(re.search(r"mdp\.with_reward_offset\((.+?)\)", str(caught.value)).group(1))
    assert np.isfinite(mdp.with_reward_offset(offset).log_rewards).all()


def test_the_suggested_offset_is_small_against_the_spread():
    with pytest.raises(MDPError) as caught:
        _ = small_mdp(rewards=[0.0, 1.0, 5.0]).log_rewards
    offset = float(re.search(r"with_reward_offset\((.+?)\)", str(caught.value)).group(1))
    assert 0 < offset <= 0.05


def test_a_negative_reward_that_is_never_paid_does_not_forbid_the_logarithm():
    rewards = np.ones((3, 2, 3))
    rewards[0, 0, 0] = -5.0
    assert np.array_equal(small_mdp(rewards=rewards).log_rewards, np.zeros((3, 2)))


@given(st.integers(0, 2**32 - 1), st.floats(-50, 50), st.floats(0.05, 0.98), st.booleans())
@settings(max_examples=50)
def test_an_offset_shifts_every_policys_return_by_offset_over_one_minus_discount(seed, offset, discount, by_next_state):
    rng = np.random.default_rng(seed)
    dense = rng.dirichlet(np.ones(4), (4, 3)) * (rng.random((4, 3, 4)) < 0.7) + 1e-3
    dense /= dense.sum(axis=-1, keepdims=True)
    rewards = rng.normal(size=(4, 3, 4) if by_next_state else (4, 3))
    mdp = TabularMDP.from_dense(dense, rewards, discount)
    policy = random_policy(mdp, seed=seed)
    shift = evaluate_policy(mdp.with_reward_offset(offset), policy) - evaluate_policy(mdp, policy)
    np.testing.assert_allclose(shift, offset / (1.0 - discount), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offset", [float("nan"), float("inf")])
def test_an_offset_that_is_not_finite_is_refused(offset):
    with pytest.raises(MDPError, match="not a finite number"):
        small_mdp().with_reward_offset(offset)


# --- policies and random MDPs -------------------------------------------------------------------------------


def test_deterministic_and_uniform_policies():
    assert np.array_equal(deterministic_policy(np.array([1, 0, 1]), 2), [[0, 1], [1, 0], [0, 1]])
    assert np.array_equal(uniform_policy(small_mdp()), np.full((3, 2), 0.5))


@pytest.mark.parametrize(("states", "successors"), [(6, None), (6, 6), (6, 4), (40, 3), (1, 1)])
def test_random_mdps_have_as_many_distinct_successors_as_asked_for(states, successors):
    mdp = random_mdp(states, 2, seed=3, successors=successors, smallest_reward=0.5, largest_reward=2.0)
    slots = states if successors is None else successors
    assert mdp.dynamics.probs.shape == (states, 2, slots)
    assert ((mdp.dynamics.to_dense() > 0).sum(axis=-1) == slots).all()
    assert 0.5 <= mdp.rewards.min() <= mdp.rewards.max() <= 2.0


def test_random_mdps_depend_on_the_seed_alone():
    first, again, other = (random_mdp(5, 2, seed=seed, successors=3) for seed in (1, 1, 2))
    for name in ("rewards", "start"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
        assert not np.array_equal(getattr(first, name), getattr(other, name))
    assert np.array_equal(first.dynamics.to_dense(), again.dynamics.to_dense())


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_states": 0, "num_actions": 1},
        {"num_states": 2, "num_actions": 0},
        {"num_states": 2, "num_actions": 1, "successors": 3},
        {"num_states": 2, "num_actions": 1, "successors": 0},
        {"num_states": 2, "num_actions": 1, "smallest_reward": 0.0},
        {"num_states": 2, "num_actions": 1, "smallest_reward": 3.0, "largest_reward": 2.0},
    ],
)
def test_random_mdps_that_make_no_sense_are_refused(sizes):
    with pytest.raises(MDPError, match=r"do not make an MDP|are not positive"):
        random_mdp(**sizes, seed=0)


def test_random_models_stay_on_the_real_successors():
    mdp = small_mdp()
    model = random_model(mdp, seed=4)
    assert np.array_equal(model.to_dense() > 0, DENSE > 0)
    assert not np.array_equal(model.to_dense(), DENSE)
